"""Relay's operators -> Relax: one table of converters per family.

Such a function takes the builder, the attributes, and the operands; it returns a tensor, or a tuple of tensors.
"""
