"""Lowering: from Relax operators to VTA's layers."""
