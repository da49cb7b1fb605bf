"""Tests of controlplane/management."""
