"""The durable log beside the checkpoint: entries, epochs (fencing), folded state."""
