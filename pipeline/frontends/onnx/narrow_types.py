"""Narrow types: floats up to eight bits and packed integers, for islands only."""

from __future__ import annotations

from typing import Any

from pipeline.frontends.onnx.simplification.tensors import NARROW_TYPES, tensor_types


def uses_narrow_types(graph: Any) -> bool:
    """Look for narrow types in attributes and constants."""
    attributes = (attribute for node in graph.node for attribute in node.attribute)
    # Integers alone: of other attributes the field is 0, as is an undefined type.
    return any(
        attribute.i in NARROW_TYPES for attribute in attributes if attribute.name in ("to", "output_dtype")
    ) or any(tensor.data_type in NARROW_TYPES for tensor in graph.initializer)


def reasons(graph: Any) -> dict[int, str]:
    """Return the nodes with computed narrow tensors, with reasons.

    Constants are none of these: the importer reads their values.
    """
    texts = {
        name: f"{name!r} is of {NARROW_TYPES[value.tensor_type.elem_type]}, which no kernel computes with"
        for name, value in tensor_types(graph).items()
        if value.tensor_type.elem_type in NARROW_TYPES
    }
    computed = {name for node in graph.node if node.op_type != "Constant" for name in node.output}
    computed |= {value.name for value in graph.input} - {tensor.name for tensor in graph.initializer}
    return {
        number: texts[name]
        for number, node in enumerate(graph.node)
        for name in (*node.input, *node.output)
        if name in texts and name in computed
    }
