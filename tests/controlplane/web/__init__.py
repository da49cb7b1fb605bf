"""Tests of controlplane/web."""
