"""Tests of controlplane/actions."""
