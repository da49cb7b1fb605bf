"""Tests of agents/dead_letters."""
