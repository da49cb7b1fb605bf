"""Tests of agents/run."""
