"""Why the state forbids a command."""
