"""Tests of controlplane/store."""
