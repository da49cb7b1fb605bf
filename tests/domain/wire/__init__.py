"""Tests of controlplane/domain/wire."""
