"""What Spark logs and shows about our jobs."""
