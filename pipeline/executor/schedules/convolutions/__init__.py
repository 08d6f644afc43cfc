"""Convolutions, plain, by channel and transposed, and pooling."""
