"""Stores that Java writes: Hadoop's file systems, Delta, Iceberg, JDBC and Kafka."""
