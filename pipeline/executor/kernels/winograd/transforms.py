"""Winograd's transforms: 3x3 windows with fewer multiplications.

The results of a tile are A [(G g G') * (B d B')] A' for weights g and data d, where a prime transposes and * multiplies
element by element: A. Lavin and S. Gray, "Fast algorithms for convolutional neural networks" (2015).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.polynomial import polynomial
from numpy.typing import NDArray
from tvm import tirx

from pipeline.tvm import statements as tir

KERNEL = 3
"""Rows and columns of the windows."""

# Zero, then points and their opposites, so that half of the sums serve twice; infinity comes on top.  For four
# results, rounding errors grow a quarter as much with these as with the usual 1 and 2; all factors are exact.
# Tiles of six have still fewer products, but rounding errors that grow by far more.
_POINTS = {2: (0.0, 1.0, -1.0), 4: (0.0, 0.6875, -0.6875, 1.5, -1.5)}

OUTPUTS = tuple(_POINTS)
"""Rows and columns of results of a tile that there are transforms for."""


class WinogradMatrices(NamedTuple):
    """Transforms of data (n x n), weights (n x 3) and results (m x n)."""

    data: NDArray[np.float64]
    weights: NDArray[np.float64]
    results: NDArray[np.float64]


@functools.cache
def matrices(outputs: int) -> WinogradMatrices:
    """Return the transforms for 2 or 4 adjacent results per axis."""
    points = _POINTS[outputs]
    products = [polynomial.polyfromroots([root for root in points if root != point]) for point in points]
    data = np.zeros((len(points) + 1, len(points) + 1))
    # Lagrange's polynomials at the points, and the product of all for the point at infinity (Toom and Cook).
    data[:-1, :-1] = products
    data[-1] = polynomial.polyfromroots(points)
    scales = [polynomial.polyval(point, product) for point, product in zip(points, products, strict=True)]
    weights = np.vstack([np.vander(points, KERNEL, increasing=True) / np.array(scales)[:, None], [0, 0, 1]])
    last = np.zeros((outputs, 1))
    last[-1] = 1
    return WinogradMatrices(data, weights, np.hstack([np.vander(points, outputs, increasing=True).T, last]))


def of_weights(weights: NDArray[np.float32], outputs: int) -> NDArray[np.float32]:
    """Transform weights (out, in, 3, 3) to (n x n, out, in), rounding once."""
    transform = matrices(outputs).weights
    # In float64: weights are transformed once, while the model is built, where exactness costs nothing.
    products = np.kron(transform, transform) @ weights.reshape(-1, KERNEL**2).T.astype(np.float64)
    return np.asarray(products, np.float32).reshape(-1, *weights.shape[:2])


def of_data(values: Sequence[Any], outputs: int, lanes: int) -> tuple[list[Any], list[Any]]:
    """Transform one column of vectors, with preparing statements."""
    matrix = matrices(outputs).data
    ends, statements = tir.bind_values("part", [_sum(matrix[0], values), _sum(matrix[-1], values)], f"float32x{lanes}")
    rows = [ends[0]]
    for row in matrix[1:-1:2]:
        # The row of the opposite point differs in the signs of the odd places.
        # Half of the multiplications: both rows are sums of the same two parts.
        even_terms, odd_terms = (np.where(np.arange(len(row)) % 2 == parity, row, 0) for parity in (0, 1))
        parts, part_bindings = tir.bind_values(
            "part", [_sum(even_terms, values), _sum(odd_terms, values)], f"float32x{lanes}"
        )
        pair, pair_bindings = tir.bind_values("part", [parts[0] + parts[1], parts[0] - parts[1]], f"float32x{lanes}")
        rows += pair
        statements += [*part_bindings, *pair_bindings]
    return [*rows, ends[1]], statements


def of_results(values: Sequence[Any], outputs: int, lanes: int) -> tuple[list[Any], list[Any]]:
    """Return one column's results, with preparing statements."""
    matrix = matrices(outputs).results
    halves = zip(values[1:-1:2], values[2:-1:2], strict=True)
    pairs, statements = tir.bind_values(
        "part", [sums for a, b in halves for sums in (a + b, a - b)], f"float32x{lanes}"
    )
    first, last = values[0], values[-1]
    sums = [
        _sum([row[0], *row[1:-1:2], row[-1]], [first, *pairs[number % 2 :: 2], last])
        for number, row in enumerate(matrix)
    ]
    results, result_bindings = tir.bind_values("part", sums, f"float32x{lanes}")
    return results, [*statements, *result_bindings]


def _sum(factors: Sequence[float] | NDArray[np.float64], values: Sequence[Any]) -> Any:
    """Return a weighted sum, factorless terms first for fusion."""
    terms = [(float(factor), value) for factor, value in zip(factors, values, strict=True) if factor]
    total = None
    for factor, value in sorted(terms, key=lambda term: term[0] != 1):
        product = value if factor == 1 else value * tirx.FloatImm("float32", factor)
        total = product if total is None else total + product
    return total
