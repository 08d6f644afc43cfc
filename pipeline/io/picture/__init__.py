"""Arithmetic of pictures."""
