"""Tests of dashboard/pages."""
