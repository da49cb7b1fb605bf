"""The fold: states and how events change them."""
