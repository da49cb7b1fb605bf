"""Tests of agents/spark/jvm."""
