"""Tests of engine.utils."""
