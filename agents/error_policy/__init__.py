"""The error policy that the agent applies: settings, and the decision about a failed record."""
