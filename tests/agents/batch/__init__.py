"""Tests of agents/batch."""
