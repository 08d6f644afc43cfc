"""Cost of one bundle for batches of any size beside a build for each size.

SqueezeNet with random weights, float32, one stage on one core.  Each batch goes through a build for just its size, is
padded to the next larger of a few sizes, and goes through one build for any size; the three take turns in one run.

padded_ratio, symbolic_ratio  their seconds over those of the build for just this size
relative_error                the largest of the three, of the answer to ONNX Runtime's, as a share of its largest value
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from time import perf_counter

import models
import numpy as np
import onnx
import onnxruntime
from report import Row, median, parser, report, usable_cores

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.scheduler.pipeline import Pipeline
from pipeline.split.symbolic_model import OpenModel, open_model

# The sizes of the buckets, others between them, and 5, which no power of two divides.
BATCHES = (1, 2, 8, 16, 32, 5)
BUCKETS = (1, 8, 32)
SIDES = {
    "specialised": (BATCHES, "refuse"),
    "padded": (BUCKETS, "pad"),
    "symbolic": ((), "symbolic"),
}


def main() -> None:
    options = parser(__doc__).parse_args()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        file = write(Path(folder))
        model = open_model(file, {"data_0": ("N", 3, 224, 224)})
        sides = {side: stack.enter_context(start(model, *how)) for side, how in SIDES.items()}
        rows = [row(file, sides, batch, 3 if options.quick else 15) for batch in BATCHES]
    report("Batches of several sizes through one bundle", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def write(folder: Path) -> Path:
    """Write SqueezeNet with a batch that varies."""
    model = models.load("squeezenet")
    for value in (*model.graph.input, *model.graph.output):
        if value.name == "data_0" or value in model.graph.output:
            value.type.tensor_type.shape.dim[0].dim_param = "N"
    path = folder / "squeezenet.onnx"
    onnx.save(model, path)
    return path


def start(model: OpenModel, sizes: tuple[int, ...], other_sizes: str) -> Pipeline:
    """Return a running pipeline of one stage on one core; its plan is for a size that no batch has."""
    # One core: the three differ by their kernels, which waiting threads would blur.
    board = Board("one core", (Device("cpu", cores=tuple(usable_cores()[:1])),))
    plan = pipeline.plan(model.at(N=max(sizes, default=64)), board, stages=1)
    bound_sizes = [{"N": size} for size in sizes]
    return pipeline.load(pipeline.build(model, plan, sizes=bound_sizes, other_sizes=other_sizes, check=False))


def row(file: Path, sides: dict[str, Pipeline], batch: int, rounds: int) -> Row:
    """Measure one size of batch."""
    data = np.random.default_rng(batch).standard_normal((batch, 3, 224, 224), np.float32)
    (expected,) = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"]).run(None, {"data_0": data})
    errors = [np.abs(running.submit(data).result() - expected).max() for running in sides.values()]
    seconds: dict[str, list[float]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side, running in sides.items():
            begin = perf_counter()
            running.submit(data, copy=False).result()
            seconds[side].append(perf_counter() - begin)
    medians = {side: median(each) for side, each in seconds.items()}
    return {
        "batch": batch,
        **{f"{side}_ms": 1e3 * each for side, each in medians.items()},
        **{f"{side}_ratio": medians[side] / medians["specialised"] for side in ("padded", "symbolic")},
        "relative_error": float(max(errors) / np.abs(expected).max()),
    }


if __name__ == "__main__":
    main()
