"""Do swaps of real stages leave anything behind that takes a core's time?

TVM keeps a pool of helper threads for each thread that runs kernels on several cores.  A convolution on two cores gets
frames and is swapped for itself, again and again; a null device, as in soak.py, has no such threads.

os_threads_left     threads of the system that are there after the pipeline's end and were not after one swap and close
maps_left           places in the memory's map, likewise
idle_cpu_s          processor time that the process takes after the pipeline's end until it is quiet
last_to_first_rate  frames per second in the last tenth of the swaps over those in the first; small on a busy machine
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from time import perf_counter, process_time, sleep

import numpy as np
import onnx
import psutil
from onnx import TensorProto, helper, numpy_helper
from report import Row, parser, report

import pipeline
from pipeline.core.board.board import Board, Device
from pipeline.executor.bundle import Bundle
from pipeline.system.affinity import process_cores

FRAMES_PER_SWAP = 10
LIMIT = 60.0
"""Seconds after which a process that is not quiet counts as one that never will be."""


def swap_again_and_again(swaps: int) -> Row:
    """Swap a stage on two cores again and again, and look at what is left."""
    with tempfile.TemporaryDirectory() as folder:
        bundle = _two_core_bundle(Path(folder))
    (spec,) = bundle.plan.inputs
    image = np.ones(spec.shape, np.float32)
    # Libraries, the first pool of threads and the allocator's arenas come with the first pipeline and stay.
    _swap_real(bundle, image, 1)
    _quiet_s()
    threads, maps = _resources()
    rates = _swap_real(bundle, image, swaps)
    idle = _quiet_s()
    threads_after, maps_after = _resources()
    tenth = max(1, swaps // 10)
    return {
        "stages": 1,
        "cores": len(bundle.plan.stages[0].cores),
        "swaps": swaps,
        "frames": swaps * FRAMES_PER_SWAP,
        "os_threads_left": threads_after - threads,
        "maps_left": maps_after - maps,
        "idle_cpu_s": idle,
        "last_to_first_rate": statistics.median(rates[-tenth:]) / statistics.median(rates[:tenth]),
    }


def _two_core_bundle(folder: Path) -> Bundle:
    kernel = np.random.default_rng(0).standard_normal((32, 16, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])],
        "convolution",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 64, 64))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 32, 64, 64))],
        [numpy_helper.from_array(kernel, "w")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), folder / "m.onnx")
    read = pipeline.read(folder / "m.onnx")
    board = Board("host", (Device("cpu", cores=process_cores()[:2]),))
    return pipeline.build(read, pipeline.plan(read, board, stages=1))


def _swap_real(bundle: Bundle, image: np.ndarray, swaps: int) -> list[float]:
    """Return the frames per second before each swap."""
    rates = []
    with pipeline.load(bundle) as running:
        for _ in range(swaps):
            begin = perf_counter()
            for _ in running.map(image for _ in range(FRAMES_PER_SWAP)):
                pass
            rates.append(FRAMES_PER_SWAP / (perf_counter() - begin))
            running.swap(bundle)
    return rates


def _resources() -> tuple[int, int]:
    process = psutil.Process(os.getpid())
    return process.num_threads(), len(process.memory_maps(grouped=False))


def _quiet_s() -> float:
    """Wait until the process takes no more processor time, and return how much it took."""
    first = last = process_time()
    end = perf_counter() + LIMIT
    while perf_counter() < end:
        sleep(0.2)
        last, previous = process_time(), last
        if last - previous < 0.02:
            break
    return last - first


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__)
    options.add_argument("--swaps", type=int, default=200, help="how many (default: %(default)s)")
    arguments = options.parse_args()
    swaps = 30 if arguments.quick else arguments.swaps
    report("Swapping a stage on two cores", [swap_again_and_again(swaps)], __doc__ or "", arguments.json)


if __name__ == "__main__":
    main()
