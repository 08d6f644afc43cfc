"""What kernels are written in: loops, vectors, and functions of them."""
