"""Tests of agents/journal."""
