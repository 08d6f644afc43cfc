"""Names of extents, with sums and products as exporters write them."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping

_OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.floordiv,
}

MOST_LETTERS = 200
"""Letters of the longest sum or product; longer texts are damage."""


def evaluate(text: str, extents: Mapping[str, int]) -> int | None:
    """Return the extent of a text like ``past_length + 1``, or None.

    Parameters
    ----------
    text : str
        A name, or whole numbers and names that are added, subtracted, multiplied or divided.
    """
    if text in extents:
        return extents[text]
    # Most are plain names, and a model may have thousands.
    if text.isidentifier() or len(text) > MOST_LETTERS:
        return None
    try:
        return _evaluate(ast.parse(text.strip(), mode="eval").body, extents)
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return None


def _evaluate(node: ast.expr, extents: Mapping[str, int]) -> int:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        return node.value
    if isinstance(node, ast.Name):
        return extents[node.id]
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        return _OPERATIONS[type(node.op)](_evaluate(node.left, extents), _evaluate(node.right, extents))
    raise ValueError(f"{ast.dump(node)} is no extent")
