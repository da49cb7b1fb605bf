"""Tests of agents/executor."""
