"""Tests of controlplane/history."""
