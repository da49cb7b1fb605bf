"""The pages, one module per subject: they read the request, call queries, and render."""
