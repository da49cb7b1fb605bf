"""Values framed by a schema registry: a zero byte, the schema id in four bytes, then the record."""
