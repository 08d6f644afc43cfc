"""Folding by PyTorch: values of constants alone, such as positions and masks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from pipeline.frontends.torch import signature
from pipeline.frontends.torch.calls import is_promise

MOST_ELEMENTS = 1 << 20
"""Most elements of a result above all its operands; larger ones are made anew for each frame."""

# Different each time that they are computed.
_RANDOM = torch.Tag.nondeterministic_seeded


def fold(
    nodes: Iterable[Any], constants: Mapping[Any, Any], symbols: Mapping[Any, int], refused: Mapping[Any, str]
) -> dict[Any, Any]:
    """Return the values of constant nodes.

    The nodes are in order; `refused` are those that cannot be imported, of any size therefore.
    """
    values: dict[Any, Any] = {}
    for node in nodes:
        if not _is_foldable(node, constants, values, symbols):
            continue
        if node not in refused and _is_large(node, {**constants, **values}):
            continue
        operands = {operand: _value(operand, constants, values, symbols) for operand in node.all_input_nodes}
        arguments, keywords = torch.fx.node.map_arg((node.args, node.kwargs), operands.__getitem__)
        if "device" in keywords:
            keywords = {**keywords, "device": torch.device("cpu")}
        try:
            with torch.no_grad():
                values[node] = node.target(*arguments, **keywords)
        except Exception:  # noqa: BLE001, S112 - whatever it is, it is said when the node is imported
            continue
    return values


def _is_foldable(
    node: Any, constants: Mapping[Any, Any], values: Mapping[Any, Any], symbols: Mapping[Any, int]
) -> bool:
    if node.op != "call_function" or signature.is_number(node) or is_promise(node):
        return False
    if not isinstance(node.target, torch._ops.OpOverload):  # noqa: SLF001 - there is no public class
        # The parts of results that were folded.
        return node.target.__name__ == "getitem" and node.args[0] in values
    if _RANDOM in node.target.tags or node.target._schema.is_mutable:  # noqa: SLF001
        return False
    return all(
        operand in constants
        or operand in values
        or (signature.is_number(operand) and signature.fixed_number(operand.meta["val"], symbols) is not None)
        for operand in node.all_input_nodes
    )


def _is_large(node: Any, values: Mapping[Any, Any]) -> bool:
    sizes = [_size(values[operand]) for operand in node.all_input_nodes if operand in values]
    result = node.meta.get("val")
    return _size(result) > max(MOST_ELEMENTS, sum(sizes))


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(map(_size, value))
    return math.prod(int(extent) for extent in value.shape) if isinstance(value, torch.Tensor) else 0


def _value(node: Any, constants: Mapping[Any, Any], values: Mapping[Any, Any], symbols: Mapping[Any, int]) -> Any:
    if node in values:
        return values[node]
    return constants[node] if node in constants else signature.fixed_number(node.meta["val"], symbols)
