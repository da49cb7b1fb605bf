"""Tests of controlplane/domain/state."""
