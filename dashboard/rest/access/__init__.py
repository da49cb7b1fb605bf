"""REST: who may do what: tokens, credentials of agents, their key, and the audit."""
