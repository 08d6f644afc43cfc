"""VTA simulated, bit for bit."""
