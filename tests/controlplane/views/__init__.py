"""Tests of controlplane/views."""
