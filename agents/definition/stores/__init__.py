"""The stores that sinks write into: files, tables and topics; how each writes a number once."""
