"""Sums of products in register tiles, common to convolutions and matmuls."""
