"""Comparison: outputs against expected outputs, on frames of random values."""
