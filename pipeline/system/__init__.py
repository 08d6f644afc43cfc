"""Processes, threads, files and packages: nothing of neural networks."""
