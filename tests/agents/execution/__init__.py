"""Tests of agents/execution."""
