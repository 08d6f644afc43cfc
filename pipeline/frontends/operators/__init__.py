"""Relax operators common to several formats.

A function takes ``emit`` first, which binds an expression or gives it its type, as each format does; behind it the
operands, then whatever else the operator needs.  It returns an expression.
"""
