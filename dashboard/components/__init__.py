"""Parts of pages: charts, lists, buttons and forms, ready for a template."""
