"""Speed of model files, unsplit, on one core beside the runtime that their format belongs to.

    python bench/model_speed.py FILES...

The process stays on one core.  Our stage, our pipeline of that one stage, the format's own runtime (ONNX Runtime,
LiteRT with XNNPACK, PyTorch) and OpenVINO, if it is installed, with one thread take turns.  All have their default
options, but ours has the precision of the command line, and OpenVINO is measured in float32 and as it is by default.
Denormals are zeros for ONNX Runtime as well, whose frames this thread computes.  bench/current_models.py writes
networks to measure.  All times are the shortest of the processor's time that the
process takes, which is a frame's duration where nobody else uses the core.  Models that need their own runtime for some
of their operators are left out.

reference_us    one frame in the format's own runtime, with the copies that its Python interface makes
stage_us        our stage alone
frame_us        a frame of ours, from `submit` to the result; stream_us in a stream (`map`)
overhead_us     frame less stage; copy_us is a copy of the inputs, which is part of it
call_ratio      frame without that copy, over reference
stage_ratio     reference over stage; openvino_ratio and openvino_default_ratio: OpenVINO over stage
ratio           reference over stream: frames per second, ours over the reference's
relative_error  of our answer to the reference's, as a share of its largest value
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import math
import os
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from time import perf_counter, process_time_ns
from typing import Any

import numpy as np
from model_runtimes import RUNTIMES, Frame, OpenVino, Runtime, candidate_frames, candidate_inputs
from report import Row, installed_version, parser, report, text, usable_cores

import pipeline
from pipeline.core.plan.stage_options import PRECISIONS
from pipeline.executor import devices
from pipeline.system.memory import snapshot
from pipeline.system.threads import run_in_thread

Run = Callable[[], Any]
# Frames of a stream; and of a turn, at most: the sides take turns often where neighbours disturb the machine.
STREAM, TURN = 8, 16
# Seconds of a turn that are not measured: caches, and what the side before has left.
SETTLED = 0.003
FEWEST = 5


def main() -> None:
    """Measure all files and report."""
    options = arguments()
    os.sched_setaffinity(0, {options.core})
    rows: list[Row] = []
    for file in options.files:
        # Each in a thread of its own: what TVM keeps in a thread ends with it.
        rows.append(run_in_thread(partial(measure_file, file, options), "bench"))
        print(*(f"{name}={text(value)}" for name, value in rows[-1].items()), flush=True)
    rows += means([row for row in rows if row.get("stage_us", 0) > options.above_us])
    report("Model files, one core", rows, (__doc__ or "").rpartition("\n\n")[2], options.json)


def means(rows: list[Row]) -> list[Row]:
    """Return the geometric means of each kind of model, and the smallest ratio."""
    results: list[Row] = []
    for kind in sorted({row["kind"] for row in rows}):
        group = [row for row in rows if row["kind"] == kind]
        ratios = {name: [row[name] for row in group if row.get(name)] for name in group[0] if "ratio" in name}
        mean = {name: math.exp(sum(map(math.log, each)) / len(each)) for name, each in ratios.items() if each}
        results.append({"model": f"geometric mean of {len(group)}", "kind": kind, **mean})
        results.append(
            {"model": "smallest", "kind": kind, **{name: min(each) for name, each in ratios.items() if each}}
        )
    return results


def arguments() -> argparse.Namespace:
    """Return the command line's options."""
    options = parser(__doc__)
    options.add_argument("files", nargs="+", type=Path, metavar="FILE", help=", ".join(RUNTIMES))
    options.add_argument("--core", type=int, default=usable_cores()[-1], help="the core to stay on")
    options.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0], help="ours (default: float32)")
    options.add_argument("--above-us", type=float, default=200, help="stages that count in the mean (default: 200)")
    return options.parse_args()


def measure_file(file: Path, options: argparse.Namespace) -> Row:
    """Measure one file, or say why that is not possible."""
    try:
        reference = RUNTIMES[file.suffix](file, threads=1)
        specs = candidate_inputs(reference.inputs)[0]
        graph = pipeline.read(file, {spec.name: spec.shape for spec in specs} or None, fallback=False)
        plan = pipeline.plan(graph, stages=1, board="host", precision=options.precision)
        bundle = pipeline.build(graph, plan, check=False)
        frame = runnable_frame(reference, candidate_frames(specs, 0))
        kinds = {tensor.dtype for tensor in graph.tensors.values()} & {"int8", "uint8", "float16"}
        kind = min(kinds, default="float32").removeprefix("u")
        return {"model": file.stem[-60:], "kind": kind, **measure(bundle, frame, peers(file, reference), options)}
    except Exception as error:  # noqa: BLE001 - other files go on
        return {"model": file.stem[-60:], "error": re.sub(r"\s+", " ", str(error))[:200]}


def peers(file: Path, reference: Runtime) -> dict[str, Runtime]:
    """Return what we are compared with: the format's own runtime, and OpenVINO as far as it takes the file."""
    runtimes = {"reference": reference}
    if installed_version("openvino") and file.suffix != ".pt2":
        with contextlib.suppress(RuntimeError):
            runtimes |= {"openvino": OpenVino(file, "float32", 1), "openvino_default": OpenVino(file, "default", 1)}
    return runtimes


def runnable_frame(reference: Any, frames: list[dict[str, np.ndarray]]) -> Frame:
    """Return the first frame that the reference takes."""
    for frame in frames[:-1]:
        try:
            reference.run(frame)
        except Exception:  # noqa: BLE001 - of whatever kind its runtime has
            continue
        return frame
    return frames[-1]


def measure(bundle: Any, frame: Frame, runtimes: Mapping[str, Runtime], options: argparse.Namespace) -> Row:
    """Time the sides in turns, and compare their answers."""
    stage, code = bundle.plan.stages[0], bundle.codes[0]
    runtime = devices.create(bundle.plan.board.device(stage.device))
    runtime.open([options.core])
    program = runtime.load(stage, code)
    tensors = [runtime.copy_in(frame[spec.name]) for spec in stage.inputs]
    with pipeline.load(bundle) as running:
        sides: dict[str, Run] = {
            **{name: partial(peer.run, frame) for name, peer in runtimes.items()},
            "stage": lambda: runtime.run(program, tensors),
            "frame": lambda: running.submit(frame).result(),
            "copy": lambda: list(map(snapshot, frame.values())),
            "stream": lambda: collections.deque(running.map([frame] * STREAM), maxlen=0),
        }
        error = relative_error(running.submit(frame).outputs(), runtimes["reference"].run(frame))
        times = time_sides(sides, 0.3 if options.quick else 2.0)
    times["stream"] /= STREAM
    return {
        **{f"{side}_us": seconds * 1e6 for side, seconds in times.items()},
        "overhead_us": (times["frame"] - times["stage"]) * 1e6,
        "call_ratio": (times["frame"] - times["copy"]) / times["reference"],
        "stage_ratio": times["reference"] / times["stage"],
        **{f"{name}_ratio": times[name] / times["stage"] for name in runtimes if name != "reference"},
        "ratio": times["reference"] / times["stream"],
        "relative_error": error,
    }


def relative_error(ours: Mapping[str, np.ndarray], expected: list[np.ndarray]) -> float:
    """Return the largest difference of any output, as a share of that output's largest value."""
    pairs = zip(ours.values(), expected, strict=True)
    return max(float(np.abs(a - b.astype(float)).max() / (np.abs(b).max() or 1)) for a, b in pairs if b.size)


def time_sides(sides: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """Return each side's shortest seconds; they take turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    begin = perf_counter()
    while perf_counter() - begin < seconds * len(sides) or len(times["stream"]) < FEWEST:
        for side, run in sides.items():
            take_turn(run, times[side])
    return {side: min(each) for side, each in times.items()}


def take_turn(run: Run, times: list[float]) -> None:
    """Run a side several times, and note the processor's time of each."""
    begin = perf_counter()
    run()
    while perf_counter() - begin < SETTLED:
        run()
    for _ in range(TURN):
        start = process_time_ns()
        run()
        times.append((process_time_ns() - start) * 1e-9)
        if perf_counter() - begin > 10 * SETTLED:
            return


if __name__ == "__main__":
    main()
