"""Sums of products in tiles of registers: what convolutions and products share."""
