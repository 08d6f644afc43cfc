"""The table of all operators, and what a program has beyond it."""

from __future__ import annotations

from pipeline.frontends.relay import syntax
from pipeline.frontends.relay.operators import (
    convolution,
    creation,
    detection,
    dynamic,
    elementwise,
    images,
    indexing,
    layouts,
    lookup,
    normalization,
    placement,
    pooling,
    products,
    quantized,
    rearranging,
    reductions,
    sampling,
    shapes,
)
from pipeline.frontends.relay.operators.common import Converter
from pipeline.frontends.relay.syntax import RelayProgram

_FAMILIES = (
    convolution, creation, detection, dynamic, elementwise, images, indexing, layouts, lookup, normalization,
    placement, pooling, products, quantized, rearranging, reductions, sampling, shapes,
)  # fmt: skip

TABLE: dict[str, Converter] = {name: convert for family in _FAMILIES for name, convert in family.TABLE.items()}
"""Converters by Relay's operator names."""


def find_unsupported(program: RelayProgram) -> list[str]:
    """Return a text per unconvertible operator, with places under ``@main``."""
    positions: dict[str, list[int]] = {}
    functions: set[str] = set()
    # From main on, so that functions that nobody calls may hold anything.
    expressions: list[syntax.Expression] = [program.functions["main"]]
    while expressions:
        expression = expressions.pop()
        if isinstance(expression, syntax.OperatorReference) and expression.name not in TABLE:
            positions.setdefault(expression.name, []).append(expression.position)
        if isinstance(expression, syntax.GlobalReference) and expression.name not in functions:
            functions.add(expression.name)
            expressions += [program.functions[expression.name]] if expression.name in program.functions else []
        expressions += syntax.children(expression)
    return [
        f"{name} ({_describe_positions(program, uses)})"
        for name, uses in sorted(positions.items(), key=lambda use: min(use[1]))
    ]


def _describe_positions(program: RelayProgram, positions: list[int]) -> str:
    first = program.locate(min(positions))
    return first if len(positions) == 1 else f"{first}, and {len(positions) - 1} more"
