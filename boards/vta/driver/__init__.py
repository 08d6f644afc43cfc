"""Driving VTA: registers, memory, start and end, on a board or on the simulator behind the same interface."""
