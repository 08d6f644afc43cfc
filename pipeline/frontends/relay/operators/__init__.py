"""Relay's operators -> Relax: one table of converters per family.

A converter takes the builder, the attributes, and the operands; it returns a tensor, or a tuple of tensors.
"""
