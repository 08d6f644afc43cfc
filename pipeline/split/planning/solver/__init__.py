"""Solver: divisions of a chain by dynamic programming, with a bound."""
