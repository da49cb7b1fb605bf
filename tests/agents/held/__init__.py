"""Tests of agents/held."""
