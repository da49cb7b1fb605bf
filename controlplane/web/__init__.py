"""The web process: ASGI application, security headers, allowed hosts, connections."""
