"""The index of failed records by what they have: fields, keys, positions and words."""
