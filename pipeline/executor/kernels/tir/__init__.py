"""Building blocks of kernels: loops, vectors, and functions of them."""
