"""Processor time of builds: the first, the same again, and with a moved cut.

Each model has a process and an empty cache of its own.  All are checked against the unsplit model.

first_s        reading, planning, building and saving a model in one stage; imports are not counted
second_s       the same again, in the same process
cut_s          in two stages with a cut
moved_cut_s    in two stages with the cut one group later
read_ms        reading alone, per operator, the second time
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

import published_models
from layers import Layers
from report import Row, parser, report

import pipeline
from pipeline.split.cuts import legal_cuts

MODELS = (("mobilenet_v2", "float32"), ("mobilenet_v2", "int8"), ("yolov8n", "int8"))
QUICK = (("squeezenet", "float32"),)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--one", nargs=2, metavar=("MODEL", "PRECISION"), help="print one row as JSON")
    arguments = options.parse_args()
    if arguments.one:
        print(json.dumps(row(*arguments.one)))
        return
    rows = [measure(*model) for model in (QUICK if arguments.quick else MODELS)]
    report("Processor time of builds", rows, (__doc__ or "").partition("\n\n")[2], arguments.json)


def measure(model: str, precision: str) -> Row:
    """Return a model's row from a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.run(
            [sys.executable, __file__, "--one", model, precision], env={**os.environ, "SOC_PIPELINE_CACHE": folder},
            check=True, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
    result: Row = json.loads(process.stdout.splitlines()[-1])
    return result


def row(model: str, precision: str) -> Row:
    """Build a model four times."""
    with tempfile.TemporaryDirectory() as folder:
        file = write(model, precision, Path(folder))
        # What the first build imports is not its own.
        build(write("unet", "float32", Path(folder)), Path(folder), stages=1)
        first, second = (seconds(build, file, Path(folder), stages=1) for _ in range(2))
        begin = process_time()
        graph = pipeline.read(file)
        reading = process_time() - begin
        middle = len(positions := legal_cuts(graph)) // 2
        cut, moved_cut = (
            seconds(build, file, Path(folder), cuts=[positions[number].position]) for number in (middle, middle + 1)
        )
        return {
            "model": f"{model} {precision}",
            "first_s": first,
            "second_s": second,
            "cut_s": cut,
            "moved_cut_s": moved_cut,
            "read_ms": reading * 1e3 / len(graph.operators),
        }


def seconds(call: Any, *arguments: Any, **options: Any) -> float:
    """Return the processor's time of a call, in this process and its children."""
    begin = spent()
    call(*arguments, **options)
    return spent() - begin


def spent() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + children.ru_utime + children.ru_stime


def build(file: Path, folder: Path, **options: Any) -> None:
    graph = pipeline.read(file)
    pipeline.build(graph, pipeline.plan(graph, **options)).save(folder / "model.bundle")


def write(model: str, precision: str, folder: Path) -> Path:
    """Write a network, and return its file."""
    network = published_models.NETWORKS[model]
    net = Layers((3, *network.shape), int8=precision == "int8")
    outputs = network.build(net)
    file = folder / f"{model}.onnx"
    onnx_model = net.model(model, *(outputs if isinstance(outputs, list) else [outputs]))
    file.write_bytes(onnx_model.SerializeToString())
    return file


if __name__ == "__main__":
    main()
