"""Verification: a model as it was read beside the same model in the library that its format belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import BuildError

if TYPE_CHECKING:
    from pipeline.split.graph import Graph

TOLERANCE = 1e-4
"""Libraries add up in different orders; what is wrong differs by far more."""


@dataclass(frozen=True)
class Verification:
    """What a verification found.

    Attributes
    ----------
    reference : str
        The library that the model was compared with.
    largest_error, largest_value : float
        Over all outputs; values that are not finite do not count.
    relative : float
        The largest error of any output, as a share of that output's largest value.
    tolerance : float
        What was allowed of `relative`.
    seed : int
        Of the random input.
    """

    reference: str
    largest_error: float
    largest_value: float
    relative: float
    tolerance: float
    seed: int


def verify(graph: Graph, model: Any, *, tolerance: float = TOLERANCE, seed: int = 0) -> Verification:
    """Run a graph in one stage on this machine, and the model it was read from in its own library.

    Parameters
    ----------
    graph : Graph
    model : str, Path, or torch.export.ExportedProgram
        What `graph` was read from: ONNX is compared with ONNX Runtime, PyTorch with PyTorch, TFLite with LiteRT.
    tolerance : float
        Largest allowed error of an output, as a share of its largest value.
    seed : int
        Of the random input: normally distributed floats, or zeros and ones.

    Raises
    ------
    BuildError
        If an output differs by more, or has another shape or dtype.
    ModelError
        If there is no library to compare with.
    MissingExtra
        If it is not installed.
    """
    from pipeline.executor.build import random_frame
    from pipeline.split.frontends import references

    frame = random_frame(graph.inputs, seed)
    reference, expected = references.run(str(model) if isinstance(model, Path) else model, frame)
    found = _run(graph, frame)
    errors = [_error(name, reference, found[name], array) for name, array in zip(found, expected, strict=True)]
    largest = [_largest(array) for array in expected]
    shares = [error / value if value else error for error, value in zip(errors, largest, strict=True)]
    result = Verification(reference, max(errors), max(largest), max(shares), tolerance, seed)
    if result.relative > tolerance:
        worst = list(found)[shares.index(result.relative)]
        raise BuildError(
            f"model {graph.name!r} differs from {reference}: output {worst!r} by {result.relative:.3g} of its largest "
            f"value; allowed is {tolerance:.3g}"
        )
    return result


def _run(graph: Graph, frame: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from pipeline import api

    bundle = api.build(graph, api.plan(graph, stages=1), check=False)
    with api.load(bundle) as running:
        result = running.submit(frame).result()
    named = result if isinstance(result, dict) else {graph.outputs[0].name: result}
    return {spec.name: np.asarray(named[spec.name]) for spec in graph.outputs}


def _error(name: str, reference: str, found: np.ndarray, expected: np.ndarray) -> float:
    if (found.shape, found.dtype) != (expected.shape, expected.dtype):
        raise BuildError(
            f"output {name!r} is {found.dtype}{list(found.shape)}, but {expected.dtype}{list(expected.shape)} by "
            f"{reference}"
        )
    first, second = (array.astype(np.float64) for array in (found, expected))
    usual = np.isfinite(second)
    if not np.array_equal(np.where(usual, 0, second), np.where(np.isfinite(first), 0, first), equal_nan=True):
        raise BuildError(f"output {name!r} is not finite where it is by {reference}, or the reverse")
    return float(np.max(np.abs(first - second), initial=0, where=usual))


def _largest(array: np.ndarray) -> float:
    values = np.abs(array.astype(np.float64))
    return float(np.max(values, initial=0, where=np.isfinite(values)))
