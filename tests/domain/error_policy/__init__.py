"""Tests of controlplane/domain/error_policy."""
