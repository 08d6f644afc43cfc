"""The onnx package's node cases, each built with default options, run, and run by the C++ runner, as its own process.

``python -m tests.support.node_cases FOLDER FIRST STEP SOC_RUN`` prints two lines of JSON for each case: its name before
it is tried, since a case may end the process, and what is wrong, if an exception is none of ours or the runner dies.
"""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx.backend.test import loader

import pipeline
from pipeline.core.packed_value import is_packed
from pipeline.errors import PipelineError, StageError

LIMIT_S = 60.0


def cases() -> list[Any]:
    """Return all node cases, in an order that does not depend on the package's files."""
    with warnings.catch_warnings():  # some divide by zero on purpose while they are made
        warnings.simplefilter("ignore")
        return sorted(loader.load_model_tests(kind="node"), key=lambda case: str(case.name))


def run(case: Any, folder: Path, soc_run: str) -> str:
    """Return what is wrong with how a case ends; refusals in one line of ours are right."""
    path = folder / "model.onnx"
    onnx.save(case.model, path)
    names = [value.name for value in case.model.graph.input]
    frames = [dict(zip(names, inputs, strict=False)) for inputs, _ in case.data_sets]
    try:
        graph = pipeline.read(path, shapes(case.model, frames[0]))
        bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
        bundle.save(folder / "model.bundle")
        with pipeline.load(folder / "model.bundle") as running:
            for frame in frames:
                running.submit({spec.name: frame[spec.name] for spec in graph.inputs}).outputs(LIMIT_S)
    except StageError as error:
        # The cases' frames are right.
        return "" if graph.islands else f"fails on its own frame: {error}"
    except PipelineError as error:
        return "" if len(str(error).splitlines()) == 1 else f"lines of {type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - which is what is looked for
        return f"{type(error).__module__}.{type(error).__name__}: {error}"
    return _by_runner(folder, graph, frames[0], soc_run)


def _by_runner(folder: Path, graph: Any, frame: dict[str, Any], soc_run: str) -> str:
    # Text, sequences and maps have no file.
    if any(map(is_packed, graph.inputs)):
        return ""
    command = [soc_run, str(folder / "model.bundle")]
    for number, spec in enumerate(graph.inputs):
        np.save(folder / f"{number}.npy", frame[spec.name])
        command += ["--input", str(folder / f"{number}.npy")]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    lines = result.stderr.splitlines()
    is_right = result.returncode == 0 or (result.returncode in {1, 2} and len(lines) == 1)
    return "" if is_right else f"soc-run ends with {result.returncode}: {result.stderr[-300:]}"


def shapes(model: onnx.ModelProto, frame: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the shapes of inputs that a model leaves open, as a frame has them."""
    tensors = {value.name: value.type.tensor_type for value in model.graph.input}
    open_names = {name for name, tensor in tensors.items() if any(dim.dim_value < 1 for dim in tensor.shape.dim)}
    return {name: np.shape(value) for name, value in frame.items() if name in open_names}


if __name__ == "__main__":
    folder_name, first, step, program = sys.argv[1:]
    warnings.simplefilter("ignore")
    for each in cases()[int(first) :: int(step)]:
        print(json.dumps({"case": each.name}), flush=True)
        print(json.dumps({"case": each.name, "wrong": run(each, Path(folder_name), program)}), flush=True)
