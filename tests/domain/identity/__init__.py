"""Tests of controlplane/domain/identity."""
