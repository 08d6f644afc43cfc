"""Middlewares that carry messages."""
