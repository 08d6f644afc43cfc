"""Sinks of results."""
