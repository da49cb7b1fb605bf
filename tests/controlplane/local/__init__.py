"""Tests of controlplane/local."""
