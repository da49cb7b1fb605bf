"""Tests of controlplane/queries."""
