"""Django's PostgreSQL engine with kept connections, for the web process only; see `base`."""
