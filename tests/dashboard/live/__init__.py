"""Tests of dashboard/live."""
