"""The pages, one module per subject: they unpack, call queries or one action, and answer."""
