"""Operators of ONNX in Relax: families with ``CONVERTERS`` by kind.

A `Converter` (see `node_call`) takes a `NodeCall` and returns the node's result as a Relax expression, a tuple of
several, or None where TVM's own converter is right.  It raises `ValueError` with the reason where it cannot; then ONNX
Runtime computes the node, see `pipeline.frontends.onnx.islands`.  Here are the operators that TVM lacks or gets wrong.

A new operator is one function, and one line in its family's table; a new family is one file, and its lines in
`registry`.
"""
