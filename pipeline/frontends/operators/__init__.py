"""Operators that several formats have, in Relax.

A function takes ``emit`` first, which binds an expression or gives it its type, as each format does; behind it the
operands, then whatever else the operator needs.  It returns an expression.
"""
