"""Tests of domain/state."""
