"""Padding: whether a frame may be filled up to a larger size, and which part of the outputs is then its result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pipeline import unsplit
from pipeline.errors import BuildError
from pipeline.executor.build import random_frame, through
from pipeline.sizes import Build, Multiple, Size, multiples, told

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.split.graph import Graph
    from pipeline.split.open_model import OpenModel

Axes = dict[str, tuple[Multiple | None, ...]]


def axes(model: OpenModel, bundle: Bundle, tolerance: float, seed: int) -> Axes:
    """Return for each output what its extents are multiples of, after trying out that frames may be padded.

    A random frame of a smaller size, padded with zeros or with random values, must give the results that the model
    gives at that size.

    Raises
    ------
    BuildError
        If they differ, or no build is large enough to pad to.
    """
    largest = max(bundle.builds, key=lambda build: sum(spec.nbytes for spec in build.plan.inputs))
    size = model.size_of(largest.plan)
    small = {name: max(1, extent // 2) for name, extent in size.items()}
    if small == size:
        raise BuildError(f"no frame can be padded to {told(size)}, the smallest size there is; build for a larger one")
    graph = model.at(small)
    found = _axes(graph, largest, size, small)
    _try(graph, largest, found, small, tolerance, seed)
    return found


def _axes(graph: Graph, largest: Build, size: Size, small: Size) -> Axes:
    found: Axes = {}
    for spec, other in zip(largest.plan.outputs, graph.outputs, strict=True):
        each = multiples(spec.shape, other.shape, size, small) if len(spec.shape) == len(other.shape) else None
        if each is None:
            raise BuildError(
                f"frames cannot be padded: the output {spec.name!r} has the shape {list(spec.shape)} for {told(size)}, "
                f"but {list(other.shape)} for {told(small)}; build for each size, or for any"
            )
        found[spec.name] = each
    return found


def _try(graph: Graph, largest: Build, found: Axes, small: Size, tolerance: float, seed: int) -> None:  # noqa: PLR0913, PLR0917
    board, plan = largest.plan.board, largest.plan
    frame = random_frame(graph.inputs, seed)
    expected = unsplit.outputs(graph, plan, seed)
    filling = random_frame(plan.inputs, seed + 1)
    # Large ones, so that a maximum is among them.
    for what, factor in (("zeros", 0), ("other values", 8)):
        padded = {spec.name: _padded(frame[spec.name], filling[spec.name] * factor) for spec in plan.inputs}
        made = through(board, list(zip(plan.stages, largest.codes, strict=True)), padded)
        for spec in plan.outputs:
            part = made[spec.name][_crop(found[spec.name], small)]
            error = _relative(part, expected[spec.name])
            if not error <= tolerance:
                raise BuildError(
                    f"frames cannot be padded: with {what} behind it, a frame of {told(small)} gives {spec.name!r} "
                    f"with an error of {error:.3g} of the largest value; build for each size, or for any"
                )


def _padded(array: np.ndarray, filling: np.ndarray) -> np.ndarray:
    filled = filling.astype(array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    return filled


def _crop(own: tuple[Multiple | None, ...], size: Size) -> tuple[slice, ...]:
    return tuple(slice(None) if each is None else slice(size[each[0]] * each[1]) for each in own)


def _relative(part: np.ndarray, expected: np.ndarray) -> float:
    values = np.asarray(expected, np.float64)
    return float(np.abs(part - values).max(initial=0.0) / (np.abs(values).max(initial=0.0) or 1.0))
