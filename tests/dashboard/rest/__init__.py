"""Tests of dashboard/rest."""
