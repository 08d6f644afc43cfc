"""Driver of VTA: registers, memory, start and end, real or simulated."""
