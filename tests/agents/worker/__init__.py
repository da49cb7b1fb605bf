"""Tests of agents/worker."""
