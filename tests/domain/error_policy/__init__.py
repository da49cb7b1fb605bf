"""Tests of domain/error_policy."""
