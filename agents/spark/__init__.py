"""All use of Spark's private API and every difference between its versions."""
