"""Tests of engine.serialization: `forge` builds files by hand, `data/` holds small files written by real torch."""
