"""Tests of agents/run/commands."""
