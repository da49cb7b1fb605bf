"""Tests of agents/definition."""
