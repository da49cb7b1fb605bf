"""Tests of agents/runtime."""
