"""Bounds on a tensor's absolute values, by its makers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pipeline.export.relax_onnx.tensors import Node, Tensor


def _keep_first(bounds: Sequence[float]) -> float:
    return bounds[0]


_COMBINATIONS: dict[str, Callable[[Sequence[float]], float]] = {
    "Pad": max,
    "Add": sum,
    "Sub": sum,
    **dict.fromkeys(("Transpose", "Reshape", "Slice", "Gather", "Expand", "Identity", "Cast"), _keep_first),
}
"""Bound of a result from the bounds of its operands, by operator."""


def bound(tensor: Tensor, makers: Mapping[Tensor, Node]) -> float:
    """Return an upper bound on absolute values; infinity if unknown."""
    if tensor.values is not None:
        return float(np.abs(tensor.values.astype(np.float64)).max(initial=0))
    of_dtype = _bound_of_dtype(tensor.dtype)
    if tensor not in makers:
        return of_dtype
    node = makers[tensor]
    sources = [source for source in node.inputs if source is not None]
    if node.kind == "Pad":
        sources.pop(1)
    combine = _COMBINATIONS.get(node.kind)
    return of_dtype if combine is None else min(combine([bound(source, makers) for source in sources]), of_dtype)


def _bound_of_dtype(dtype: str) -> float:
    if dtype == "bool":
        return 1.0
    if not dtype.startswith(("int", "uint")):
        return float("inf")
    limits = np.iinfo(dtype)
    return float(max(limits.max, -int(limits.min)))
