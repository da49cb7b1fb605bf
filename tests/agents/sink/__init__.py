"""Tests of agents/sink."""
