"""Tests of agents/failures."""
