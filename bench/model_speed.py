"""Speed of model files, unsplit, on one core beside the runtime that their format belongs to.

    python bench/model_speed.py FILES...

The process stays on one core.  Our stage, our pipeline of that one stage, and the format's own runtime (ONNX Runtime,
LiteRT with XNNPACK, PyTorch) with one thread take turns.  All times are the shortest: what neighbours on a shared
machine add to a frame in several threads is more than what they add to one in one thread.  Models that need their own
runtime for some of their operators are left out.

reference_us    one frame in the format's own runtime, with the copies that its Python interface makes
stage_us        our stage alone
stream_us       a frame of ours in a stream (`map`), from the caller's array to the result
overhead_us     from `submit` to the result of a single frame, less the stage's time
stage_ratio     reference over stage
ratio           reference over stream: frames per second, ours over the reference's
relative_error  of our answer to the reference's, as a share of its largest value
"""

from __future__ import annotations

import argparse
import collections
import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from report import Row, parser, report, text, usable_cores

import pipeline
from pipeline.core.random_frame import random_frame
from pipeline.core.threads import run_in_thread
from pipeline.executor.devices.cpu import CpuRuntime
from pipeline.split import frontends

Arrays = Mapping[str, np.ndarray]
Run = Callable[[], Any]
# Frames of a stream; and of a turn, at most: the sides must take turns often where neighbours disturb the machine.
STREAM, TURN = 4, 16
# Seconds of a turn that are not measured: caches, and threads of the side before.
SETTLED = 0.003


def main() -> None:
    options = arguments()
    # Each file in a thread of its own: what TVM keeps in a thread ends with it.
    os.sched_setaffinity(0, {options.core})
    rows = []
    for file in options.files:
        rows.append(run_in_thread(lambda file=file: row(file, options), "bench"))
        print(*(f"{name}={text(value)}" for name, value in rows[-1].items()), flush=True)
    ratios = [each["ratio"] for each in rows if each.get("stage_us", 0) > options.above_us]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        rows.append({"model": f"geometric mean of {len(ratios)} above {options.above_us:g} us", "ratio": mean})
    report("Model files, one core", rows, (__doc__ or "").rpartition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("files", nargs="+", type=Path, metavar="FILE", help=".onnx, .tflite, .pt2")
    options.add_argument("--core", type=int, default=usable_cores()[-1], help="the core to stay on")
    options.add_argument("--above-us", type=float, default=200, help="stages that count in the mean (default: 200)")
    options.add_argument("--shape", action="append", default=[], metavar="NAME=1,3,8", help="shape of an open input")
    return options.parse_args()


def row(file: Path, options: argparse.Namespace) -> Row:
    """Measure one file."""
    shapes = {name: [int(extent) for extent in text.split(",")] for name, text in map(split_shape, options.shape)}
    try:
        graph = pipeline.read(file, shapes or None, fallback=False)
        reference_runner = REFERENCES[frontends.kind(file).value.package.rpartition(".")[2]]
        bundle = pipeline.build(graph, pipeline.plan(graph, stages=1, board="host"), check=False)
        frame = random_frame(graph.inputs, 0)
        return {"model": file.stem, **measure(bundle, frame, reference_runner(file, frame), options)}
    except Exception as error:  # noqa: BLE001 - other files go on
        return {"model": file.stem, "error": re.sub(r"\s+", " ", str(error))[:200]}


def split_shape(text: str) -> tuple[str, str]:
    name, _, shape = text.rpartition("=")
    return name, shape


def measure(bundle: Any, frame: Arrays, reference: Run, options: argparse.Namespace) -> Row:
    """Time the sides in turns, and compare their answers."""
    plan = bundle.plan
    runtime = CpuRuntime(plan.board.device(plan.stages[0].device))
    runtime.open([options.core])
    program = runtime.load(plan.stages[0], bundle.codes[0])
    tensors = [runtime.copy_in(frame[spec.name]) for spec in plan.stages[0].inputs]
    with pipeline.load(bundle) as running:
        sides: dict[str, Run] = {
            "reference": reference,
            "stage": lambda: runtime.run(program, tensors),
            "single": lambda: running.submit(frame).result(),
            "stream": lambda: collections.deque(running.map([frame] * STREAM), maxlen=0),
        }
        error = relative_error(running.submit(frame).outputs(), reference())
        seconds = time_sides(sides, 0.5 if options.quick else 2.0)
    seconds["stream"] /= STREAM
    return {
        "reference_us": seconds["reference"] * 1e6,
        "stage_us": seconds["stage"] * 1e6,
        "stream_us": seconds["stream"] * 1e6,
        "overhead_us": (seconds["single"] - seconds["stage"]) * 1e6,
        "stage_ratio": seconds["reference"] / seconds["stage"],
        "ratio": seconds["reference"] / seconds["stream"],
        "relative_error": error,
    }


def relative_error(ours: Arrays, expected: list[np.ndarray]) -> float:
    pairs = zip(ours.values(), expected, strict=True)
    return max(float(np.abs(a - b.astype(float)).max() / (np.abs(b).max() or 1)) for a, b in pairs if b.size)


def time_sides(sides: Mapping[str, Run], seconds: float) -> dict[str, float]:
    """Return each side's shortest seconds; they take turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    begin = perf_counter()
    while perf_counter() - begin < seconds * len(sides) or len(times["stream"]) < 3:
        for side, run in sides.items():
            turn(run, times[side])
    return {side: min(each) for side, each in times.items()}


def turn(run: Run, times: list[float]) -> None:
    begin = perf_counter()
    run()
    while perf_counter() - begin < SETTLED:
        run()
    for _ in range(TURN):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
        if perf_counter() - begin > 10 * SETTLED:
            return


def onnxruntime_reference(file: Path, frame: Arrays) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, dict(frame))


def litert_reference(file: Path, frame: Arrays) -> Run:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(file), num_threads=1)
    inputs = [(detail["index"], frame[detail["name"]]) for detail in interpreter.get_input_details()]
    for index, array in inputs:
        interpreter.resize_tensor_input(index, array.shape)
    interpreter.allocate_tensors()
    outputs = [detail["index"] for detail in interpreter.get_output_details()]

    def run() -> list[np.ndarray]:
        for index, array in inputs:
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


def torch_reference(file: Path, frame: Arrays) -> Run:
    import torch

    torch.set_num_threads(1)
    module = torch.export.load(file).module()
    tensors = [torch.from_numpy(array) for array in frame.values()]

    def run() -> list[np.ndarray]:
        with torch.no_grad():
            result = module(*tensors)
        return [each.numpy() for each in (result if isinstance(result, list | tuple) else [result])]

    return run


REFERENCES = {"onnx": onnxruntime_reference, "tflite": litert_reference, "torch": torch_reference}

if __name__ == "__main__":
    main()
