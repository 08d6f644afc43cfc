"""Quantised operators, computed as integers."""
