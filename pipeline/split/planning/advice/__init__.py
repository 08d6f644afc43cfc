"""Advice: the reasons for a plan, and possible gains."""
