"""Padding: proof that frames may be padded, and the outputs' valid part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.comparison.compare import compare_output
from pipeline.comparison.random_frame import random_frame
from pipeline.core.shapes import Build, Multiple, Size, describe_size, extent_multiples
from pipeline.errors import BuildError
from pipeline.executor.parity import run_stages
from pipeline.workflow import unsplit

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.split.graph import Graph
    from pipeline.split.symbolic_model import OpenModel

Axes = dict[str, tuple[Multiple | None, ...]]


def axes(model: OpenModel, bundle: Bundle, tolerance: float, seed: int) -> Axes:
    """Return the outputs' extent multiples, after trying padded frames.

    A random frame of a smaller size, padded with zeros or with random values, must give the results that the model
    gives at that size. Raises `BuildError` if they differ, or no build is large enough to pad to.
    """
    # The largest, which all others are padded to where no smaller one fits.
    largest = max(bundle.builds, key=lambda build: sum(spec.nbytes for spec in build.plan.inputs))
    size = model.size_of(largest.plan)
    # Half of each extent, so that there is padding along every axis that varies.
    smaller_size = {name: max(1, extent // 2) for name, extent in size.items()}
    if smaller_size == size:
        raise BuildError(
            f"no frame can be padded to {describe_size(size)}, the smallest size there is; build for a larger one"
        )
    graph = model.at(smaller_size)
    multiples_by_output = _axes(graph, largest, size, smaller_size)
    _try(graph, largest, multiples_by_output, smaller_size, tolerance, seed)
    return multiples_by_output


def _axes(graph: Graph, largest: Build, size: Size, smaller_size: Size) -> Axes:
    axes_by_output: Axes = {}
    for spec, output in zip(largest.plan.outputs, graph.outputs, strict=True):
        factors = (
            extent_multiples(spec.shape, output.shape, size, smaller_size)
            if len(spec.shape) == len(output.shape)
            else None
        )
        if factors is None:
            raise BuildError(
                f"frames cannot be padded: the output {spec.name!r} has the shape {list(spec.shape)} for "
                f"{describe_size(size)}, but {list(output.shape)} for {describe_size(smaller_size)}; build "
                "for each size, or for any"
            )
        axes_by_output[spec.name] = factors
    return axes_by_output


def _try(graph: Graph, largest: Build, axes_by_output: Axes, smaller_size: Size, tolerance: float, seed: int) -> None:  # noqa: PLR0913, PLR0917
    board, plan = largest.plan.board, largest.plan
    frame = random_frame(graph.inputs, seed)
    references = unsplit.outputs_of(graph, plan, [frame])[0]
    # Other numbers than those of the frame, which would hide that they are read.
    filling = random_frame(plan.inputs, seed + 1)
    # Large ones, so that a maximum is among them.
    for title, factor in (("zeros", 0), ("other values", 8)):
        full_frame = {}
        for spec in plan.inputs:
            array = frame[spec.name]
            full_frame[spec.name] = (filling[spec.name] * factor).astype(array.dtype)
            full_frame[spec.name][tuple(map(slice, array.shape))] = array
        results = run_stages(board, list(zip(plan.units, largest.codes, strict=True)), full_frame)
        for name, factors in axes_by_output.items():
            crop = (slice(None if factor is None else smaller_size[factor[0]] * factor[1]) for factor in factors)
            error = compare_output(results[name][tuple(crop)], references[name]).relative
            # Not `error > tolerance`, which NaN passes.
            if not error <= tolerance:
                raise BuildError(
                    f"frames cannot be padded: with {title} behind it, a frame of {describe_size(smaller_size)} gives "
                    f"{name!r} with an error of {error:.3g} of the largest value; build for each size, or for any"
                )
