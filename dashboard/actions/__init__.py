"""The dialogs of commands and the actions behind their buttons."""
