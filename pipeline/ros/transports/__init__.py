"""Middlewares for messages."""
