"""Charts, drawn on the server as SVG."""
