"""Functions written out, and old opsets converted."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from typing import Any

import onnx

from .tensors import infer_types, opset

OLDEST_OPSET = 7
"""Oldest opset that TVM's importer takes; older models are converted, since their Add and its like broadcast by
attributes."""


def expand_functions(model: Any, kinds: Collection[str] = ()) -> Any:
    """Return the model with inlined functions and a recent opset.

    `kinds`: operators that are written out too, by those that ONNX defines them with.
    """
    # A module of the package that it does not import itself.
    from onnx import inliner

    if model.functions:
        model = inliner.inline_local_functions(model)
    # A definition may use others.
    while not set(kinds).isdisjoint(node.op_type for node in model.graph.node):
        count = len(model.graph.node)
        identifiers = [("", kind) for kind in kinds]
        # It knows no type of an operand that is left out in front of another one; such nodes stay as they are.
        with contextlib.suppress(Exception):
            model = inliner.inline_selected_functions(infer_types(model), identifiers, inline_schema_functions=True)
        # Some have a definition for some types or opsets only.
        if len(model.graph.node) == count:
            break
    if 0 < opset(model) < OLDEST_OPSET:
        _check_broadcasts(model.graph)
        # The converter takes only inputs for the constants of older files, other than exporters and ONNX Runtime do.
        model.ir_version = max(model.ir_version, 4)
        model = onnx.version_converter.convert_version(model, OLDEST_OPSET)
    return model


def _check_broadcasts(graph: Any) -> None:
    """Raise `ValueError` for a broadcast axis, which the converter drops."""
    for node in graph.node:
        if {"axis", "broadcast"} <= {attribute.name for attribute in node.attribute}:
            complaint = f"{node.op_type} broadcasts along an axis (node {node.name or node.output[0]!r})"
            raise ValueError(f"its opset is too old to be converted: {complaint}")
