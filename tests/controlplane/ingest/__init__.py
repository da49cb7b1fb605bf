"""Tests of controlplane/ingest."""
