"""The end of an instance: signals, commands, the end of the script, and the wait for threads."""
