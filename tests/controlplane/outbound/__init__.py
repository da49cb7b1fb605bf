"""Tests of controlplane/outbound."""
