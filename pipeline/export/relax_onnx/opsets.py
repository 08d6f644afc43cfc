"""Versions of ONNX's operators: the lowest valid one of a node."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from pipeline.export.relax_onnx.islands import model_opset
from pipeline.export.relax_onnx.tensors import Node, Unwritable

LOWEST, HIGHEST = 13, 22
"""Lowest and highest written version of ONNX's operators: vendors' tools want old ones."""


def lowest_opset(node: Node) -> int:
    """Return a node's lowest valid version; an island has its model's."""
    if node.model is not None:
        return max(model_opset(node.model), LOWEST)
    inputs, outputs = (
        tuple(None if tensor is None else tensor.dtype for tensor in tensors) for tensors in (node.inputs, node.outputs)
    )
    attributes = tuple(sorted(name for name, value in node.attributes.items() if value is not None))
    version = _lowest_opset(node.kind, attributes, inputs, outputs)
    # In its first version there is no third dimension.
    return max(version, 20) if node.kind == "GridSample" and len(node.outputs[0].shape) > 4 else version


@functools.cache
def _lowest_opset(kind: str, attributes: Sequence[str], inputs: Sequence[str | None], outputs: Sequence[str]) -> int:
    from onnx import defs

    for version in range(LOWEST, HIGHEST + 1):
        try:
            schema = defs.get_schema(kind, version)
        except defs.SchemaError:
            continue
        are_dtypes = _are_of(schema, schema.inputs, inputs) and _are_of(schema, schema.outputs, outputs)
        if set(attributes) <= set(schema.attributes) and are_dtypes:
            return version
    raise Unwritable(f"{kind} of {', '.join(name for name in (*inputs, *outputs) if name)}")


ONNX_NAMES = {
    "float32": "float", "float64": "double", "float8_e4m3fn": "float8e4m3fn", "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2", "float8_e5m2fnuz": "float8e5m2fnuz", "float4_e2m1fn": "float4e2m1",
}  # fmt: skip
"""ONNX's names of dtypes, where they differ."""


def _are_of(schema: Any, formals: Sequence[Any], dtypes: Sequence[str | None]) -> bool:
    """Check an operator's inputs or outputs for dtypes."""
    allowed = {constraint.type_param_str: constraint.allowed_type_strs for constraint in schema.type_constraints}
    for position, dtype in enumerate(dtypes):
        formal = formals[min(position, len(formals) - 1)]
        types = allowed.get(formal.type_str, [formal.type_str])
        if dtype is not None and f"tensor({ONNX_NAMES.get(dtype, dtype)})" not in types:
            return False
    return True
