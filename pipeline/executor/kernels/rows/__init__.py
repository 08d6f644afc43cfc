"""Kernels that work line by line: reductions, softmax, normalization."""
