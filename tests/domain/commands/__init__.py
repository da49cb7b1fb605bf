"""Tests of controlplane/domain/commands."""
