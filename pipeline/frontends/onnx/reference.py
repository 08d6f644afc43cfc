"""ONNX models run by ONNX Runtime."""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.frontends.onnx.real_numbers import without_rounding
from pipeline.system.files import is_utf8, utf8_folder
from pipeline.system.optional import require

ALTERNATIVE = "ONNX Runtime's optimised kernels"

_SUPPORTED = re.compile(r"max supported IR version: (\d+)")


def evaluate(model: Any, frame: Mapping[str, np.ndarray], *, alternative: bool = False, runs: int = 1) -> list[Any]:
    """Return ONNX Runtime's outputs for a frame, as an `alternative` of fused operators."""
    session = open_session(model, _quiet_options() if alternative else literal_options())
    return [_run(session, frame) for _ in range(runs)][-1]


def evaluate_real(model: Any, frame: Mapping[str, np.ndarray]) -> list[Any] | None:
    """Return a quantised model's real-number outputs, or None."""
    proto, data_folder = _copy(model)
    real_model = without_rounding(proto)
    return None if real_model is None else _run(open_session(real_model, _quiet_options(), data_folder), frame)


def intermediates(model: Any, frame: Mapping[str, np.ndarray], names: Collection[str]) -> dict[str, np.ndarray]:
    """Return named inner tensors of a model, except subgraphs'."""
    proto, data_folder = _copy(model)
    made_names = dict.fromkeys(name for node in proto.graph.node for name in node.output if name in names)
    del proto.graph.output[:]
    for name in made_names:
        proto.graph.output.add(name=name)
    session = open_session(proto, literal_options(), data_folder)
    return dict(zip(made_names, _run(session, frame), strict=True))


def _run(session: Any, frame: Mapping[str, np.ndarray]) -> list[Any]:
    # Sequences and maps stay what they are.
    return [
        output if isinstance(output, list | dict) else np.asarray(output) for output in session.run(None, dict(frame))
    ]


def literal_options() -> Any:
    """Return options for literal, silent sessions of ONNX Runtime."""
    options = _quiet_options()
    # A library that optimises may round otherwise, or even be wrong.
    runtime = require("onnxruntime", "verify", "verifying ONNX models")
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return options


def _quiet_options() -> Any:
    options = require("onnxruntime", "verify", "verifying ONNX models").SessionOptions()
    # Fatal only: warnings on unused initializers would stand between a command's lines.
    options.log_severity_level = 4
    return options


def open_session(model: Any, options: Any, data_folder: Path | None = None) -> Any:
    """Return ONNX Runtime's session of a model or file.

    `options` are for this session alone.

    A model in memory may have its data files in a folder.
    """
    try:
        return _open_as_it_is(model, options, data_folder)
    except Exception as error:
        if (supported := _SUPPORTED.search(str(error))) is None:
            raise
    # Writers use the newest version of the format, also for models that have nothing of what it brought.
    proto, folder = _copy(model)
    proto.ir_version = int(supported[1])
    return _open_as_it_is(proto, options, data_folder or folder)


def _copy(model: Any) -> tuple[Any, Path | None]:
    """Return a model's copy without external data, and its folder."""
    if not isinstance(model, str | Path):
        return copy.deepcopy(model), None
    onnx = require("onnx", "onnx", "reading ONNX models")
    return onnx.load(os.fspath(model), load_external_data=False), Path(model).parent


def _open_as_it_is(model: Any, options: Any, data_folder: Path | None) -> Any:
    runtime = require("onnxruntime", "verify", "running ONNX models")
    providers = ["CPUExecutionProvider"]
    if not isinstance(model, str | Path):
        with utf8_folder(data_folder or Path()) as folder:
            if data_folder is not None:
                options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
            return runtime.InferenceSession(model.SerializeToString(), options, providers=providers)
    path = Path(model)
    # A path where there is one: the data files of a model lie beside it.
    if is_utf8(path):
        return runtime.InferenceSession(str(path), options, providers=providers)
    # ONNX Runtime takes no other names; of the bytes alone it cannot know where the data files lie.
    with utf8_folder(path.parent) as folder:
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(folder))
        return runtime.InferenceSession(path.read_bytes(), options, providers=providers)
