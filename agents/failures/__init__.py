"""Failed records: collect, describe, locate."""
