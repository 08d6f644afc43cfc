"""Lowering: from Relax operators to the layers that VTA can run."""
