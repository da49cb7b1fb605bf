"""Tests of domain/commands."""
