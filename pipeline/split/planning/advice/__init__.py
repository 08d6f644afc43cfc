"""Advice: the reasons for a plan, and what would help."""
