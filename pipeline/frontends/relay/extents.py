"""Numeric or symbolic extents: compared, multiplied, divided where provable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tvm import tirx
from tvm.sym import Analyzer


def plain(extent: Any) -> Any:
    """Return an extent as a number if it is one."""
    return int(extent) if isinstance(extent, int | tirx.IntImm) else extent


def numbers(extents: Iterable[Any]) -> list[int]:
    """Return the numeric extents."""
    return [extent for extent in extents if isinstance(extent, int)]


def are_equal_shapes(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Check two shapes for equality, symbols included."""
    return len(first) == len(second) and all(map(_equal, first, second))


def _equal(first: Any, second: Any) -> bool:
    if isinstance(first, int) and isinstance(second, int):
        return first == second
    return bool(Analyzer().can_prove_equal(first, second))


def product(extents: Iterable[Any]) -> Any:
    """Return the number of elements of a shape."""
    # Python's product works on TVM's expressions, which overload multiplication.
    count = math.prod(extents)
    return count if isinstance(count, int) else plain(Analyzer().simplify(count))


def quotient(total: Any, part: Any) -> Any:
    """Divide `total` by `part`; None without proof of an exact result."""
    if isinstance(total, int) and isinstance(part, int):
        # Codes of a reshape may hold 0 and below, which divide nothing.
        return total // part if part > 0 and total % part == 0 else None
    # Floor division is only right where it leaves nothing, which the product proves.
    factor = plain(Analyzer().simplify(tirx.floordiv(total, part)))
    return factor if _equal(product([factor, part]), total) else None
