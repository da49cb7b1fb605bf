"""The definition of a pipeline: steps, sinks, coordinates, checks."""
