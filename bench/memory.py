"""Memory of a large model, from reading it to running its bundle.

A network of convolutions and dense layers with random weights is written twice, with its parameters inside of the ONNX
file and beside it.  Each chain of steps runs in a process of its own (Linux only).  All is what came on top of a
process that has built a small model, over the bytes of the parameters.

own_peak_ratio  highest memory of the step that is no page of a file, seen every few milliseconds
own_ratio       what of it is still there at the end of the step
resident_ratio  highest resident memory of the step, with pages of files, which the system takes back when it needs them
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from report import Row, parser, report

import pipeline

MEGABYTES = 500
QUICK_MEGABYTES = 60
CHAINS = (("read", "plan", "build", "save"), ("read", "plan", "build and check"), ("load", "run"))
# Half and half: weights of convolutions and of dense layers are packed by different code, either of which might hold
# them twice.
_DENSE_SHARE = 0.5
_CHANNELS = 256


def write(path: Path, megabytes: float, *, beside: bool) -> int:
    """Write a network of about so many megabytes of parameters, and return their bytes."""
    generator = np.random.default_rng(0)
    nodes: list[Any] = []
    weights: list[Any] = []
    read = "image"

    def add(kind: str, shape: tuple[int, ...], **attributes: object) -> None:
        nonlocal read
        name = f"{kind.lower()}{len(nodes)}"
        values = generator.standard_normal(shape, np.float32) * np.sqrt(2 / np.prod(shape[1:]))
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}_weight"))
        nodes.append(helper.make_node(kind, [read, f"{name}_weight"], [name], name, **attributes))
        nodes.append(helper.make_node("Relu", [name], [f"{name}_relu"], f"{name}_relu"))
        read = f"{name}_relu"

    convolution, width = _CHANNELS**2 * 9 * 4 / 1e6, 2048
    add("Conv", (_CHANNELS, 3, 3, 3), pads=[1, 1, 1, 1])
    for _ in range(round(megabytes * (1 - _DENSE_SHARE) / convolution)):
        add("Conv", (_CHANNELS, _CHANNELS, 3, 3), pads=[1, 1, 1, 1])
    nodes.append(helper.make_node("GlobalAveragePool", [read], ["pool"], "pool"))
    nodes.append(helper.make_node("Flatten", ["pool"], ["flat"], "flat"))
    read = "flat"
    add("Gemm", (width, _CHANNELS), transB=1)
    for _ in range(round(megabytes * _DENSE_SHARE / (width**2 * 4 / 1e6))):
        add("Gemm", (width, width), transB=1)
    image, result = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("image", [1, 3, 8, 8]), (read, [1, width]))
    )
    model = helper.make_model(
        helper.make_graph(nodes, "large", [image], [result], weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    onnx.save(model, path, save_as_external_data=beside, location=f"{path.name}.data")
    return sum(len(each.raw_data) or np.prod(each.dims) * 4 for each in weights)


def steps(model: Path, folder: Path) -> dict[str, Callable[[], None]]:
    """Return what each step does; a step finds what those before it left."""
    results: dict[str, Any] = {}
    bundle = folder / "bundle"

    def keep(name: str, value: object) -> None:
        results[name] = value

    return {
        "read": lambda: keep("graph", pipeline.read(model)),
        "plan": lambda: keep("plan", pipeline.plan(results["graph"], stages=2)),
        "build": lambda: keep("bundle", pipeline.build(results["graph"], results["plan"], check=False)),
        "build and check": lambda: keep("bundle", pipeline.build(results["graph"], results["plan"])),
        "save": lambda: results["bundle"].save(bundle),
        "load": lambda: keep("running", pipeline.load(bundle)),
        "run": lambda: run(results["running"]),
    }


def run(running: pipeline.Pipeline) -> None:
    """Run a few frames and close the pipeline."""
    with running:
        for _ in running.map([np.zeros((1, 3, 8, 8), np.float32)] * 4):
            pass


def memory(key: str, process: int | str = "self") -> int:
    """Return a figure of a process in bytes, such as ``VmHWM``."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{key}:")) * 1024


def child(chain: str, model: Path, folder: Path) -> None:
    """Take the steps of a chain and print what each took."""
    # TVM's compiler and the importer come into memory with a first small build and belong to no model.  A bundle runs
    # without them, so the chain that loads one does not get them.
    if "load" not in chain:
        write(folder / "small.onnx", 0, beside=False)
        graph = pipeline.read(folder / "small.onnx")
        pipeline.build(graph, pipeline.plan(graph, stages=1))
    base, base_own = memory("VmRSS"), memory("RssAnon")
    records, actions = [], steps(model, folder)
    for name in chain.split(","):
        # Resets VmHWM (proc(5)), so each step has a peak of its own.  RssAnon has none: the parent samples it.
        Path("/proc/self/clear_refs").write_text("5")
        begin = perf_counter()
        actions[name]()
        records.append((name, begin, perf_counter(), memory("VmHWM") - base, memory("RssAnon"), base_own))
    print(json.dumps(records))


def watch(command: Sequence[str]) -> tuple[str, list[tuple[float, int]]]:
    """Run a command; return what it prints, and its own memory at times of the clock that all processes share."""
    samples = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        while running.poll() is None:
            with contextlib.suppress(OSError, StopIteration):  # It has ended meanwhile.
                samples.append((perf_counter(), memory("RssAnon", running.pid)))
            # In 3 ms some ten megabytes can be filled; reading more often would take a core from the child.
            sleep(0.003)
        printed = running.stdout.read() if running.stdout else ""
    if running.returncode:
        raise SystemExit(running.returncode)
    return printed, samples


def rows(megabytes: float, folder: Path) -> Iterator[Row]:
    """Yield one row for each way of storing the parameters and step."""
    for form, beside in (("inside", False), ("beside", True)):
        model = folder / f"{form}.onnx"
        size = write(model, megabytes, beside=beside)
        for chain in CHAINS:
            command = [sys.executable, __file__, "--child", ",".join(chain), str(model), str(folder)]
            printed, samples = watch(command)
            for step, begin, end, resident, own_end, base in json.loads(printed.splitlines()[-1]):
                highest = max(own_end, *(each for time, each in samples if begin <= time <= end))
                yield {
                    "parameters": form,
                    "parameters_mb": size / 1e6,
                    "step": step,
                    "own_peak_mb": (highest - base) / 1e6,
                    "own_peak_ratio": (highest - base) / size,
                    "own_ratio": (own_end - base) / size,
                    "resident_ratio": resident / size,
                    "seconds": end - begin,
                }


def main() -> None:
    """Measure, print and write."""
    options = parser(__doc__)
    options.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    arguments = options.parse_args()
    if arguments.child:
        chain, model, folder = arguments.child
        child(chain, Path(model), Path(folder))
        return
    with tempfile.TemporaryDirectory() as folder:
        table = list(rows(QUICK_MEGABYTES if arguments.quick else MEGABYTES, Path(folder)))
    report("Memory of a large model", table, "ratios: over the bytes of the parameters", arguments.json)


if __name__ == "__main__":
    main()
