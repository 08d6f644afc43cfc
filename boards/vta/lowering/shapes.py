"""Shapes: the same values under other extents."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any

from boards.vta.lowering.values import Sums, Tensor, Unsupported

if TYPE_CHECKING:
    from boards.vta.lowering.reader import Reader


def reshape(reader: Reader, call: Any) -> Any:
    """Take the channels, rows and columns of one image as one row, or give a row of channels two more axes."""
    extents, found = tuple(int(each) for each in call.ty.shape), reader.known(call.args[0])
    if not isinstance(found, Tensor | Sums):
        raise Unsupported("it gives constants another shape")
    before = found.extents
    flat = extents[0] == 1 and extents[1] == prod(before) and prod(extents[2:]) == 1
    alone = isinstance(found, Tensor) or extents[1] == before[1]
    if not (flat and alone) and extents != before:
        raise Unsupported(f"it makes {list(extents)} of {list(before)}")
    return replace(found, extents=extents)
