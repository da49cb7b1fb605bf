"""Acts on accounts, roles, tokens and credentials of agents."""
