"""Stages of a graph, written as ONNX and run by ONNX Runtime one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.export import relax_onnx
from pipeline.split import extract
from pipeline.split.graph import Graph
from tests.support.onnx_models import Arrays


def thirds(graph: Graph) -> list[int]:
    """Return two cuts that divide a graph's groups in three, as far as there are groups."""
    ends = [end for end in graph.group_ends if end < len(graph.operators)]
    return sorted({ends[len(ends) // 3], ends[2 * len(ends) // 3]}) if ends else []


def run_exported(
    graph: Graph, values: Mapping[str, np.ndarray], positions: Sequence[int] | None = None, **options: Any
) -> Arrays:
    """Write the stages between cuts, three by default, run them, and return the graph's outputs."""
    live = dict(values)
    for part in extract.parts(graph, thirds(graph) if positions is None else positions):
        live |= run_model(relax_onnx.write(extract.module(part), "stage", **options), part, live)
    return {spec.name: live[spec.name] for spec in graph.outputs}


def run_model(model: Any, part: extract.GraphPart, values: Mapping[str, np.ndarray]) -> Arrays:
    """Run the written model of a part, which has to have its inputs and outputs."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [[end.name for end in ends] for ends in (session.get_inputs(), session.get_outputs())]
    assert names == [[spec.name for spec in specs] for specs in (part.inputs, part.outputs)]
    results = session.run(None, {spec.name: values[spec.name] for spec in part.inputs})
    for spec, result in zip(part.outputs, results, strict=True):
        assert (result.shape, str(result.dtype)) == (spec.shape, spec.dtype)
    return dict(zip(names[1], results, strict=True))


def assert_same(actual: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], steps: int = 0) -> None:
    """Compare values up to 1e-4 of each tensor's largest one, and integers up to some steps."""
    assert list(actual) == list(reference)
    for name, expected in reference.items():
        is_real = expected.dtype.kind == "f"
        finite = np.abs(expected[np.isfinite(expected)]) if is_real else expected
        tolerance = 1e-4 * float(finite.max(initial=0)) if is_real else steps
        wide = np.float64 if is_real else np.int64
        np.testing.assert_allclose(actual[name].astype(wide), expected.astype(wide), rtol=0, atol=tolerance)
