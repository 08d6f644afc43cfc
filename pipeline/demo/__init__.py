"""The demo: a small trained network, its images, and a comparison of both ways to stream them."""
