"""DataFrames: names of columns, local frames and checkpoints, what Python functions need."""
