"""An NPU beside a CPU, measured over the ideal: one frame per time of the slowest stage.

The NPU is a delegate of LiteRT, tests/support/fake_npu.c, whose operators take the times of a table here, which it
sleeps through, to the microsecond.  The stages in front of it and behind it are computed by the CPU meanwhile.  The
rate is taken between the first and the last result of a stream.  On a CPU that has other work it says nothing: see
`load`.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from time import perf_counter

import numpy as np
from ai_edge_litert import schema_py_generated as schema
from report import Row, median, parser, report, usable_cores
from tflite_writer import TfliteWriter

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.split.graph import Graph

SOURCE = Path(__file__).parents[1] / "tests" / "support" / "fake_npu.c"
SHAPE = (1, 16, 16, 8)
# Seconds of each operator; the network has two of each kind.
TABLES = {"short": {"CONV_2D": 2e-3, "DEPTHWISE_CONV_2D": 1e-3}, "long": {"CONV_2D": 8e-3, "DEPTHWISE_CONV_2D": 4e-3}}
SAME = schema.Padding.SAME


def main() -> None:
    options = parser(__doc__).parse_args()
    rounds, seconds = (3, 1.0) if options.quick else (7, 4.0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        library = build_delegate(folder)
        graph = pipeline.read(write_network(folder / "net.tflite"))
        rows = [
            row(title, build(graph, library, table, folder / title), table, rounds, seconds)
            for title, table in TABLES.items()
        ]
    report("Fake NPU beside the CPU: measured over ideal", rows, __doc__ or "", options.json)


def build_delegate(folder: Path) -> Path:
    """Compile the delegate."""
    library = folder / "libfake_npu.so"
    command = ["cc", "-O2", "-D_GNU_SOURCE", "-shared", "-fPIC", "-o", str(library), str(SOURCE), "-lm"]
    subprocess.run(command, check=True, timeout=120)
    return library


def write_network(path: Path) -> Path:
    """Write pooling, four convolutions, two plain ones and two by channel, and pooling again."""
    writer = TfliteWriter()
    last = add_pooling(writer, writer.input(SHAPE))
    for _ in range(2):
        last = add_convolution(writer, add_convolution(writer, last, "CONV_2D"), "DEPTHWISE_CONV_2D")
    return writer.save(path, add_pooling(writer, last))


def add_pooling(writer: TfliteWriter, tensor: int) -> int:
    """Add an operator that is no convolution."""
    result = writer.tensor(SHAPE)
    writer.add(
        "MAX_POOL_2D", [tensor], [result], options="Pool2DOptions", padding=SAME, strideW=1, strideH=1, filterWidth=3,
        filterHeight=3,
    )  # fmt: skip
    return result


def add_convolution(writer: TfliteWriter, tensor: int, kind: str) -> int:
    """Add a convolution of three by three, with a rectifier."""
    generator, channels, result = np.random.default_rng(0), SHAPE[3], writer.tensor(SHAPE)
    is_deep = kind == "DEPTHWISE_CONV_2D"
    shape = (1, 3, 3, channels) if is_deep else (channels, 3, 3, channels)
    constants = [generator.standard_normal(shape) / 6, generator.standard_normal(channels)]
    own_options = (
        {"options": "DepthwiseConv2DOptions", "depthMultiplier": 1} if is_deep else {"options": "Conv2DOptions"}
    )
    writer.add(
        kind, [tensor, *(writer.constant(each.astype(np.float32)) for each in constants)], [result], padding=SAME,
        strideW=1, strideH=1, dilationWFactor=1, dilationHFactor=1,
        fusedActivationFunction=schema.ActivationFunctionType.RELU, **own_options,
    )  # fmt: skip
    return result


def build(graph: Graph, library: Path, table: Mapping[str, float], path: Path) -> Path:
    """Save the bundle with the NPU between two stages of the CPU, as it is planned."""
    plan = pipeline.plan(graph, board(library, table), stages=3, replicas=False)
    stages = [stage.device for stage in plan.stages]
    if stages != ["cpu", "npu", "cpu"]:
        raise AssertionError(f"the stages are on {stages}")
    pipeline.build(graph, plan).save(path)
    return path


def row(title: str, path: Path, table: Mapping[str, float], rounds: int, seconds: float) -> Row:
    """Return one line of the table."""
    # Two operators of each kind, one after the other.
    stage_s = 2 * sum(table.values())
    rate = median([frames_per_s(path, max(20, int(seconds / stage_s))) for _ in range(rounds)])
    return {
        "table": title,
        "npu_stage_ms": 1e3 * stage_s,
        "frames_per_s": rate,
        "ideal_frames_per_s": 1 / stage_s,
        "ratio": rate * stage_s,
        "load": os.getloadavg()[0],
    }


def board(library: Path, table: Mapping[str, float]) -> Board:
    """Return two cores of this machine, and the NPU with a memory of its own."""
    target = {"kind": "litert", "delegate": str(library), "options": table}
    npu = Device("npu", "litert", memory="npu", target=target, flops=1e12, bytes_per_s=1e11)
    cpu = Device("cpu", cores=tuple(usable_cores()[:2]))
    return Board("board", (cpu, npu), (Link(("host", "npu"), 1e10, 1e-6),))


def frames_per_s(path: Path, frames: int) -> float:
    """Return the rate of a stream."""
    generator = np.random.default_rng(0)
    frames_in = [generator.standard_normal(SHAPE).astype(np.float32) for _ in range(frames)]
    with pipeline.load(path) as running:
        times = [perf_counter() for _ in running.map(frames_in)]
    return (frames - 1) / (times[-1] - times[0])


if __name__ == "__main__":
    main()
