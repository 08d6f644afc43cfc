"""Trackers: numbers for things that are followed over frames."""
