"""Tests of domain/identity."""
