"""Tests of agents/decisions."""
