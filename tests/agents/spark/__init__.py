"""Tests of agents/spark."""
