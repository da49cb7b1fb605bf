"""Tests of dashboard/components."""
