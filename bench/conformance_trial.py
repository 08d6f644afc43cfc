"""One case of a conformance suite: read, cut, built, run and compared."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

Data = Sequence[tuple[dict[str, Any], list[Any]]]
"""Inputs by name and expected outputs, of each frame of a case."""


class Tolerance(NamedTuple):
    """Largest difference from an expected value: `absolute`, and `relative` times the value."""

    relative: float
    absolute: float


def attempt(trial: Callable[[], None]) -> str:
    """Return why a trial fails, in a line for the table of reasons; empty if it does not."""
    try:
        trial()
    except Exception as error:  # noqa: BLE001 - whatever it is, the case has failed
        first_line = (str(error).strip() or "?").splitlines()[0]
        return f"{type(error).__name__}: {re.sub(r'/tmp/[^ :]*/', '', first_line)}"
    return ""


def by_pipeline(model: Any, data: Data, tolerance: Tolerance, *, fallback: bool) -> None:
    """Raise unless we read, cut, build and run a model with the expected outputs."""
    import pipeline
    from pipeline.split.cuts import legal_cuts

    graph = pipeline.read(model, open_shapes(model, data[0][0]), fallback=fallback)
    plan = pipeline.plan(graph, stages=min(2, 1 + len(legal_cuts(graph))))
    with pipeline.load(pipeline.build(graph, plan)) as running:
        names = [spec.name for spec in plan.outputs]
        for inputs, expected in data:
            outputs = running.submit(inputs).outputs(60)
            compare([outputs[name] for name in names], expected, tolerance)


def open_shapes(model: Any, inputs: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a frame's inputs that an ONNX file leaves open, as a user states them by --shape."""
    if not isinstance(model, Path):
        return {}
    import onnx

    tensors = {value.name: value.type.tensor_type for value in onnx.load(model).graph.input}
    open_names = {name for name, tensor in tensors.items() if any(dim.dim_value < 1 for dim in tensor.shape.dim)}
    return {name: np.shape(value) for name, value in inputs.items() if name in open_names}


def compare(results: Sequence[Any], expected: Sequence[Any], tolerance: Tolerance) -> None:
    """Raise unless all outputs have the expected type, shape and values."""
    if len(results) < len(expected):
        raise AssertionError(f"{len(results)} outputs instead of {len(expected)}")
    for result, reference in zip(results, expected, strict=False):
        if isinstance(reference, list):
            compare(result, reference, tolerance)
        elif reference is not None:
            compare_arrays(np.asarray(result), np.asarray(reference), tolerance)


def compare_arrays(result: np.ndarray, reference: np.ndarray, tolerance: Tolerance) -> None:
    """Raise unless two arrays agree as NumPy's `allclose` does it, with NaN where NaN is due."""
    if result.dtype != reference.dtype:
        raise AssertionError(f"dtype {result.dtype} instead of {reference.dtype}")
    if result.shape != reference.shape:
        raise AssertionError(f"shape {result.shape} instead of {reference.shape}")
    if reference.dtype.kind in "OUS":
        np.testing.assert_array_equal(result, reference)
    else:
        if reference.dtype.kind not in "fcbiu":  # bfloat16 and its kin, which NumPy compares only as something else
            result, reference = result.astype(np.float32), reference.astype(np.float32)
        if not np.allclose(result, reference, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True):
            raise AssertionError("other values")
