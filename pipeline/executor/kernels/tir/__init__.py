"""Building blocks of kernels: loops, vectors, and functions on them."""
