"""Tests of agents/transport."""
