"""What a pipeline's author declares: steps, sinks, coordinates, checks."""
