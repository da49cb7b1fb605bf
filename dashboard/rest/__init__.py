"""REST: the same reads and acts as the pages, for programs. Views unpack, call one, answer."""
