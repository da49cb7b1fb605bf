"""The pages of the log-in: by a password, or by single sign-on."""
