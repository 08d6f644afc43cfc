"""Compiler from int8 layers to programs of VTA."""
