"""Kernels over rows: reductions, softmax, normalization."""
