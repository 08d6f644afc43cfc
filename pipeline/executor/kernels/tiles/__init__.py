"""Sums of products in tiles of registers: the part that convolutions and products share."""
