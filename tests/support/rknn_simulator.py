"""RKNN's simulator: a stage compiled as `examples/vendors/rknn.py` does it, and run on a frame.

Run by the Python that has rknn-toolkit2: python rknn_simulator.py EXAMPLE.py MODEL.onnx CHIP FRAME.npz RESULTS.npz
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Layer(NamedTuple):
    """Row of the compiler's table: a layer, its processor, and the node that it is named after."""

    kind: str
    target: str
    name: str


class Simulation(NamedTuple):
    """Outputs of a stage, and its layers, inputs and outputs left out."""

    outputs: list[np.ndarray]
    layers: list[Layer]


def simulate(python: Path, root: Path, model: Path, chip: str, frame: Mapping[str, np.ndarray]) -> Simulation:
    """Compile a stage and run it on its inputs, in the order of `frame`."""
    frame_file, results = model.with_suffix(".frame.npz"), model.with_suffix(".results.npz")
    np.savez(frame_file, *frame.values())  # type: ignore[arg-type, unused-ignore]
    example = root / "examples" / "vendors" / "rknn.py"
    command = [str(word) for word in (python, __file__, example, model, chip, frame_file, results)]
    process = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        check=False,
        cwd=model.parent,
    )
    assert process.returncode == 0, process.stdout[-2000:]
    with np.load(results) as arrays:
        return Simulation([arrays[name] for name in arrays.files], read_layers(process.stdout))


def read_layers(log: str) -> list[Layer]:
    """Return the rows of the compiler's table."""
    _, _, table = _COLOUR.sub("", log).rpartition("FullName")
    rows = [line.partition("] ")[2].split() for line in table.splitlines()]
    rows = [row for row in rows if len(row) > 3 and row[0].isdecimal() and row[3] in ("CPU", "NPU", "GPU")]
    layers = [Layer(row[1], row[3], row[-1].partition(":")[2]) for row in rows]
    return [layer for layer in layers if not layer.kind.endswith("putOperator")]


def main() -> None:
    """Compile, and simulate."""
    example_file, model, chip, frame, results = sys.argv[1:]
    spec = importlib.util.spec_from_file_location("example", example_file)
    assert spec is not None
    assert spec.loader is not None
    example: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(example)
    from rknn.api import RKNN

    rknn = RKNN(verbose=True)
    example.build(rknn, model, chip)
    example.check("export_rknn", rknn.export_rknn(f"{results}.rknn"))
    example.check("init_runtime", rknn.init_runtime())
    with np.load(frame) as arrays:
        inputs = [arrays[name] for name in arrays.files]
    np.savez(results, *rknn.inference(inputs=inputs, data_format=["nchw"] * len(inputs)))
    rknn.release()


if __name__ == "__main__":
    main()
