"""Error: bound on the rounding errors of a convolution by Winograd's transforms.

The path of each rounding error through the transforms is that of B. Barabasz, A. Anderson, K. Soodhalter and D. Gregg,
"Error analysis and improving the accuracy of Winograd convolution for deep neural networks" (2020). Their sums of
absolute values become roots of sums of squares, since rounding errors are as good as independent: N. Higham and
T. Mary, "A new approach to probabilistic rounding error analysis" (2019). A bound for the worst signs of all errors
would also refuse direct sums of 100 channels.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pipeline.executor.kernels.winograd import transforms

LIMIT = 1e-5
"""Largest bound of a layer that is computed so, as a share of its largest value."""

_UNIT = 2.0**-24
"""Largest relative error of a rounding to float32."""

_TRANSFORM_ROUNDINGS = 4
"""Roundings one after the other in a sum of a transform, along one axis."""


def bound(weights: NDArray[np.float32], outputs: int) -> float:
    """Return the bound for tiles of `outputs`, relative to the largest value; not a number if products overflow.

    Data are unrelated values of one size.  Error and value then grow by the same factor from their root mean square to
    their largest, so that the ratio of the former is taken.
    """
    matrices, channels = transforms.matrices(outputs), weights.shape[1]
    with np.errstate(over="ignore", invalid="ignore"):
        # The sum of the first k channels is rounded once for each of them; transforms there and back come on top.
        roundings = np.arange(channels, 0, -1) + 4 * _TRANSFORM_ROUNDINGS + 1
        position_weights = transforms.of_weights(weights, outputs)
        products = np.stack([position.astype(np.float64) ** 2 @ roundings for position in position_weights])
        # Factors from an error at a position of the tile to one of a result; the products of both axes.
        along_axis = matrices.results**2 * (matrices.data**2).sum(axis=1)
        factors = np.kron(along_axis, along_axis)
        largest = (weights.astype(np.float64) ** 2).reshape(len(weights), -1).sum(axis=1).max()
        return float(_UNIT * np.sqrt((factors @ products).max() / largest)) if largest else 0.0
