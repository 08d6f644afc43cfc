"""Speed of an untuned stage on CPU cores beside libraries written by hand.

The nine light networks of the onnx package with random weights, float32, unsplit.  Ours, ONNX Runtime, OpenVINO (if it
is installed) and TVM's own default build take turns in one run; all values are medians, and the default build, which
is far slower, runs once.  With several threads, a stream through the fastest plan takes its turns too, beside one
session of ONNX Runtime per core, and OpenVINO's mode for throughput.

ratio            ours over ONNX Runtime; openvino_ratio over OpenVINO in float32, openvino_default_ratio as it is by
                 default, with bfloat16 where the processor has it
pipelined_ratio  the plan over ONNX Runtime; the time to fill its stages counts, 1 frame of 65
best_ratio       the faster of our two ways over the fastest of theirs in float32
slowest          our operators that take the most time, their GFLOP/s and share of the core's measured FMA limit
relative_error   of our answer to ONNX Runtime's, as a share of its largest value
library_mb       size of our code, its weights apart
resident_mb      of a process that loads our bundle and runs a frame, beside one of ONNX Runtime
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import functools
import importlib
import itertools
import math
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Any

import fma
import models
import numpy as np
from report import Row, installed_version, median, parser, report, usable_cores
from resident import resident_bytes

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.numerics import Numerics
from pipeline.core.plan.plan import StagePlan
from pipeline.core.plan.stage_options import PRECISIONS
from pipeline.executor import host_target
from pipeline.executor import kernels as schedules
from pipeline.executor.build import compile_stage
from pipeline.executor.bundle import export
from pipeline.executor.devices.cpu import CpuRuntime, VmStage
from pipeline.executor.executable import CompileOptions
from pipeline.executor.tuning.kernel_times import by_function, call_seconds
from pipeline.scheduler.pipeline import Pipeline
from pipeline.split import extract
from pipeline.split.graph import Graph
from pipeline.system.threads import run_in_thread
from pipeline.tvm.access import compiler_lock, tvm

QUICK = ("squeezenet", "shufflenet")
SLOWEST = 3
# Frames.  The time to fill the stages belongs to a stream; beside 64 frames it is about one in 65.
STREAM = 64
# Seconds of runs that are not measured, in which the threads of the previous side stop spinning and go to sleep.
SETTLED = 0.03
Run = Callable[[np.ndarray], Any]


def main() -> None:
    options = arguments()
    names = options.models or (QUICK if options.quick else models.NAMES)
    counts = sorted({1, len(usable_cores())})
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, threads in itertools.product(names, counts):
            # A thread of its own: TVM's pool and the core it is pinned to belong to the caller.
            rows.append(run_in_thread(functools.partial(row, name, threads, Path(folder), options), "bench"))
    for threads in counts:
        group = [each for each in rows if each["threads"] == threads]
        ratios = {name: [each[name] for each in group if each.get(name)] for name in group[0] if "ratio" in name}
        mean = {name: math.exp(sum(map(math.log, each)) / len(each)) for name, each in ratios.items() if each}
        rows.append({"model": "geometric mean", "threads": threads, **mean})
    report("One stage on CPU cores", rows, (__doc__ or "").partition("\n\n")[2], options.json)


def arguments() -> argparse.Namespace:
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", choices=models.NAMES, metavar="NAME", help=", ".join(models.NAMES))
    options.add_argument("--precision", choices=PRECISIONS, default=PRECISIONS[0], help="ours (default: float32)")
    return options.parse_args()


def row(name: str, threads: int, folder: Path, options: argparse.Namespace) -> Row:
    """Build and measure one network."""
    file = models.write(name, folder)
    graph = pipeline.read(file)
    part = extract.parts(graph, [])[0]
    module, device = extract.module(part), Device("cpu")
    begin = perf_counter()
    code = compile_stage(module, device, threads, CompileOptions(numerics=Numerics(options.precision)))
    build_seconds = perf_counter() - begin
    runtime = CpuRuntime(device)
    runtime.open(usable_cores()[:threads])
    program = runtime.load(StagePlan("whole", "cpu", part.inputs, part.outputs), code)
    frame = np.random.default_rng(0).standard_normal(graph.inputs[0].shape).astype(np.float32)
    tensor = runtime.copy_in(frame)
    sides: dict[str, Run] = {"ours": lambda _: runtime.run(program, [tensor])}
    sides["onnxruntime"] = by_onnxruntime(file, threads)
    if installed_version("openvino"):
        sides["openvino"] = by_openvino(file, threads, "f32")
        sides["openvino_default"] = by_openvino(file, threads)
    expected = np.asarray(sides["onnxruntime"](frame)[0])
    output = runtime.copy_out(sides["ours"](frame)[0])
    with contextlib.ExitStack() as stack:
        # One thread has one stage, which `ours` is already.
        streams: dict[str, Run] = {}
        if threads > 1:
            streams["pipelined"] = stream(stack.enter_context(start_pipeline(graph, options.precision)))
            streams["onnxruntime_sessions"] = by_sessions(
                file, stack.enter_context(ThreadPoolExecutor(threads)), threads
            )
            if installed_version("openvino"):
                streams["openvino_throughput"] = by_requests(file, threads)
        seconds = time_sides(sides | streams, frame, 0.5 if options.quick else 2.0)
    seconds |= {name: seconds[name] / STREAM for name in streams}
    peers = [side_s for side, side_s in seconds.items() if side not in {"ours", "pipelined", "openvino_default"}]
    return {
        "model": name,
        "threads": threads,
        **{f"{side}_frames_per_s": 1 / frame_s for side, frame_s in seconds.items()},
        "tvm_default_frames_per_s": None if options.quick else 1 / by_default(module, frame),
        "ratio": seconds["onnxruntime"] / seconds["ours"],
        "pipelined_ratio": seconds["onnxruntime"] / seconds["pipelined"] if threads > 1 else None,
        **{f"{side}_ratio": seconds[side] / seconds["ours"] for side in sides if side.startswith("openvino")},
        "best_ratio": min(peers) / min(seconds["ours"], seconds["pipelined"]) if threads > 1 else None,
        "relative_error": float(np.abs(output - expected).max() / np.abs(expected).max()),
        "build_s": build_seconds,
        "library_mb": library_bytes(code) / 1e6,
        "resident_mb": resident_bytes(save_bundle(graph, folder / f"{name}.bundle")) / 1e6,
        "onnxruntime_resident_mb": resident_bytes(file) / 1e6,
        "slowest": slowest(module, code, program, tensor) if threads == 1 else None,
    }


def save_bundle(graph: Graph, path: Path) -> Path:
    """Build and save a network as one stage."""
    pipeline.build(graph, pipeline.plan(graph, stages=1), check=False).save(path)
    return path


def library_bytes(code: Any) -> int:
    # A code that was compiled before comes as its library.
    if code.library is not None:
        return int(code.library.array.nbytes)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "stage.so"
        export(code, file)
        return file.stat().st_size


def start_pipeline(graph: Graph, precision: str) -> Pipeline:
    """Return a running pipeline of the fastest plan for this machine, from measured operators."""
    plan = pipeline.plan(graph, objective="throughput", measure=True, precision=precision)
    return pipeline.load(pipeline.build(graph, plan, check=False))


def stream(running: Pipeline) -> Run:
    return lambda frame: collections.deque(running.map([frame] * STREAM), maxlen=0)


def by_onnxruntime(file: Path, threads: int) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    # One operator at a time, as in our stage; a second pool would take more than `threads` cores.
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda frame: session.run(None, {name: frame})


def by_sessions(file: Path, pool: ThreadPoolExecutor, count: int) -> Run:
    sessions = [by_onnxruntime(file, 1) for _ in range(count)]

    def run(frame: np.ndarray) -> None:
        def share(session: Run) -> None:
            for _ in range(STREAM // count):
                session(frame)

        collections.deque(pool.map(share, sessions), maxlen=0)

    return run


def compile_openvino(file: Path, threads: int, hint: str, precision: str | None) -> Any:
    openvino: Any = importlib.import_module("openvino")
    options = {"INFERENCE_NUM_THREADS": threads, "PERFORMANCE_HINT": hint}
    # By default it computes in bfloat16 where the processor can.
    return openvino.Core().compile_model(
        str(file), "CPU", options | ({"INFERENCE_PRECISION_HINT": precision} if precision else {})
    )


def by_openvino(file: Path, threads: int, precision: str | None = None) -> Run:
    request = compile_openvino(file, threads, "LATENCY", precision).create_infer_request()
    return lambda frame: request.infer([frame], share_inputs=True)


def by_requests(file: Path, threads: int) -> Run:
    queue = importlib.import_module("openvino").AsyncInferQueue(compile_openvino(file, threads, "THROUGHPUT", "f32"))

    def run(frame: np.ndarray) -> None:
        for _ in range(STREAM):
            queue.start_async([frame], share_inputs=True)
        queue.wait_all()

    return run


def by_default(module: Any, frame: np.ndarray) -> float:
    """Return the seconds of one frame with TVM's own schedules, which use one core."""
    from tvm import relax

    with compiler_lock:
        target = host_target.host_target()
        executable = relax.build(module, target, relax_pipeline=relax.get_default_pipeline(target))
    run = relax.VirtualMachine(executable, tvm.cpu())["main"]
    begin = perf_counter()
    run(tvm.runtime.tensor(frame))
    return perf_counter() - begin


def time_sides(sides: dict[str, Run], frame: np.ndarray, seconds: float) -> dict[str, float]:
    """Return each side's median seconds; they take turns."""
    times: dict[str, list[float]] = {side: [] for side in sides}
    for run in sides.values():
        run(frame)
    begin = perf_counter()
    # Half of the time goes into settling; a slow network gets five rounds however long they take.
    while perf_counter() - begin < 2 * seconds * len(sides) or len(times["ours"]) < 5:
        for side, run in sides.items():
            # The threads of the previous side wait actively for a while, on a core that this one needs.
            settle(functools.partial(run, frame))
            start = perf_counter()
            run(frame)
            times[side].append(perf_counter() - start)
    return {side: median(each) for side, each in times.items()}


def settle(run: Callable[[], Any]) -> None:
    """Run without measuring until nothing is left of what ran before."""
    begin = perf_counter()
    while perf_counter() - begin < SETTLED:
        run()


def slowest(module: Any, code: Any, program: VmStage, tensor: Any) -> str:
    """Return our slowest operators: share of the time, GFLOP/s, and share of the core's limit."""
    # Timed call by call, with Python between two kernels: shares hold, their sum is more than the frame's time.
    times = by_function(call_seconds(code, [tensor, *program.parameters]))
    with compiler_lock:
        target = schedules.target_for(host_target.host_target())
        kernels = schedules.kernels(schedules.optimise(module, target))
        limit = fma.gflops(target)
    total = sum(sum(each) for each in times.values())
    names = sorted(times, key=lambda name: sum(times[name]), reverse=True)[:SLOWEST]
    return "; ".join(_describe(name, times[name], kernels.get(name, ("", 0)), total, limit) for name in names)


def _describe(name: str, times: Sequence[float], kernel: tuple[str, int], total: float, limit: float) -> str:
    rate = kernel[1] * len(times) / sum(times) / 1e9
    text = f"{name} x{len(times)} {sum(times) / total:.0%}"
    return f"{text} {rate:.0f} GFLOP/s {rate / limit:.0%}" if rate else text


if __name__ == "__main__":
    main()
