"""Tests of domain/wire."""
