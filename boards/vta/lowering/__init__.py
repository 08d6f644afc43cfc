"""From Relax operators to layers of VTA: which of them it can run, and as what."""
