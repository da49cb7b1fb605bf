"""The shared core: what happened, what is true, what is allowed. No Django, Spark or Redis here."""
