"""Relay's operators -> Relax: one table per family, from an operator's name to the function that converts a call.

Such a function takes the builder, the attributes, and the operands; it returns a tensor, or a tuple of tensors.
"""
