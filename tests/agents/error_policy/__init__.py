"""Tests of agents/error_policy."""
