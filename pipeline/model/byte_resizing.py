"""Bilinear resizing of quantised images, rounded as by LiteRT's reference kernels: one kernel with its form."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from tvm import te, tirx

from pipeline.model.passes.bindings import constant, with_form

KIND = "ByteResize"
"""Kind of its form."""

BITS = 10
"""Behind the point of places in signed images."""


class Resampling(NamedTuple):
    """Arithmetic of a bilinear resizing, for numbers of one dtype."""

    dtype: str
    """Dtype of mixed rows, and of shares."""
    lines: int
    """Numbers that mixing two rows gives for each column."""
    mix_rows: Callable[[Any, Any, Any], Sequence[Any]]
    """Function from two neighbours of a column, and the second's share, to these numbers."""
    mix_columns: Callable[[Sequence[Any], Sequence[Any], Any], Any]
    """Function from the numbers of two columns, and the second's share, to the result."""


def _mix_real_rows(top: Any, bottom: Any, share: Any) -> Sequence[Any]:
    rest = tirx.FloatImm("float32", 1.0) - share
    return [top.astype("float32") * rest, bottom.astype("float32") * share]


def _mix_real_columns(left: Sequence[Any], right: Sequence[Any], share: Any) -> Any:
    rest, lowest = tirx.FloatImm("float32", 1.0) - share, tirx.FloatImm("float32", -1e30)
    products = [*(number * rest for number in left), *(number * share for number in right)]
    # All are larger than this, which the compiler does not know: it would make one operation of product and sum.
    total = reduce(operator.add, (tirx.Max(product, lowest) for product in products))
    return (total + tirx.FloatImm("float32", 0.5)).astype("int32").astype("uint8")


def _whole_numbers(dtype: str, wide: str) -> Resampling:
    def mix(first: Any, second: Any, share: Any) -> Any:
        return first.astype(wide) * (tirx.IntImm(wide, 1 << BITS) - share) + second.astype(wide) * share

    def mix_columns(left: Sequence[Any], right: Sequence[Any], share: Any) -> Any:
        total = mix(left[0], right[0], share)
        # Halves away from zero: one less is added to sums that are not positive, and the shift rounds down.
        half, less = (tirx.IntImm(wide, (1 << (2 * BITS - 1)) - one) for one in (0, 1))
        rounded = total + tirx.Select(total > tirx.IntImm(wide, 0), half, less)
        return (rounded >> tirx.IntImm(wide, 2 * BITS)).astype(dtype)

    return Resampling(wide, 1, lambda top, bottom, share: [mix(top, bottom, share)], mix_columns)


RESAMPLINGS = {
    "uint8": Resampling("float32", 2, _mix_real_rows, _mix_real_columns),
    "int8": _whole_numbers("int8", "int32"),
    # The sum has 36 bits.
    "int16": _whole_numbers("int16", "int64"),
}
"""Arithmetic by the image's dtype."""


def resize(builder: Any, image: Any, rows: Sequence[np.ndarray], columns: Sequence[np.ndarray]) -> Any:
    """Return the call that resizes a channels-last image.

    `rows` and `columns` have the positions of both neighbours of each result, and the second's share.
    """
    image = builder.normalize(image)
    resampling = RESAMPLINGS[str(image.ty.dtype)]
    dtypes = ("int32", resampling.dtype) * 2
    tables = [constant(table.astype(dtype)) for table, dtype in zip((*rows, *columns), dtypes, strict=True)]

    def compute(image: Any, rows: Any, row_shares: Any, columns: Any, column_shares: Any) -> Any:
        def element(batch: Any, row: Any, column: Any, channel: Any) -> Any:
            def mixed(side: int) -> Any:
                top, bottom = (image(batch, rows(row, end), columns(column, side), channel) for end in (0, 1))
                return resampling.mix_rows(top, bottom, row_shares(row))

            return resampling.mix_columns(mixed(0), mixed(1), column_shares(column))

        shape = (image.shape[0], rows.shape[0], columns.shape[0], image.shape[3])
        return te.compute(shape, element, "resize")

    return with_form(builder.call_te(compute, image, *tables, primfunc_name_hint="byte_resize"), {"kind": KIND})
