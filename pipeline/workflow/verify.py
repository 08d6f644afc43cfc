"""Verification: a model as it was read beside the same model in the library that its format belongs to."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import BuildError

if TYPE_CHECKING:
    import numpy as np

    from pipeline.split.graph import Graph

TOLERANCE = 1e-4
"""Libraries add up in different orders; what is wrong differs by far more."""


@dataclass(frozen=True)
class Verification:
    """Result of a verification.

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


def verify(graph: Graph, model: Any, *, tolerance: float | None = None, seed: int = 0) -> Verification:
    """Run a graph in one stage on this machine, and the model it was read from in its own library.

    Parameters
    ----------
    graph : Graph
    model : str, Path, onnx.ModelProto, or torch.export.ExportedProgram
        What `graph` was read from: ONNX is compared with ONNX Runtime, PyTorch with PyTorch, TFLite with LiteRT.
    tolerance : float, optional
        Largest allowed error of an output, as a share of its largest value; by default 1e-4, more with numbers of 16
        bits.
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
    from pipeline.core.compare import compare_outputs, overall
    from pipeline.core.numerics import check_tolerance, rounding_of
    from pipeline.core.random_frame import random_frame
    from pipeline.split.frontends import references

    if tolerance is None:
        tolerance = max(TOLERANCE, rounding_of(spec.dtype for spec in graph.tensors.values()))
    check_tolerance(tolerance)
    frame = random_frame(graph.inputs, seed)
    reference, reference_outputs = references.run(str(model) if isinstance(model, Path) else model, frame)
    results = _run(graph, frame)
    # References have no names; both are in the model's order.
    expected = dict(zip(results, reference_outputs, strict=True))
    differences = compare_outputs(results, expected, reference, same_dtype=True)
    for name, difference in differences.items():
        if difference.mismatch:
            raise BuildError(f"output {name!r} {difference.mismatch}")
    # By its share: of outputs in different units, the largest number need not be the worst one.
    worst = max(differences, key=lambda name: differences[name].relative)
    total = overall(differences.values())
    share = differences[worst].relative
    if not differences[worst].within(tolerance):
        raise BuildError(
            f"model {graph.name!r} differs from {reference}: output {worst!r} by {share:.3g} of its largest "
            f"value; allowed is {tolerance:.3g}"
        )
    return Verification(reference, total.largest_error, total.largest_value, share, tolerance, seed)


def _run(graph: Graph, frame: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    from pipeline.workflow.build import build
    from pipeline.workflow.load import load
    from pipeline.workflow.plan import plan

    # Unchecked, since another library is the better reference than the same compiler.
    bundle = build(graph, plan(graph, stages=1), check=False)
    with load(bundle) as running:
        outputs = running.submit(frame).outputs()
    # In the order of the graph, by which outputs of the reference get their names.
    return {spec.name: outputs[spec.name] for spec in graph.outputs}
