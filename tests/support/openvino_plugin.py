"""OpenVINO as a plug-in provider of ONNX Runtime: a device on every x86 machine, and files that it compiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pipeline.core.board.board import Device
from pipeline.executor import devices
from pipeline.executor.devices import onnx_plugins

NAME = "OpenVINOExecutionProvider"
# Its default on CPUs that have it is bfloat16.
SETTINGS = {"load_config": '{"CPU": {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": "1"}}'}
TARGET: dict[str, Any] = {"library": "onnxruntime-ep-openvino", "device": "CPU", "providers": [[NAME, SETTINGS]]}
DEVICE = Device("device", "onnxruntime", target=TARGET)


def require_device() -> Device:
    """Return the device, or skip the test."""
    pytest.importorskip("onnxruntime_ep_openvino")
    if reason := devices.why_absent(DEVICE):
        pytest.skip(f"this processor has no OpenVINO: {reason}")
    return DEVICE


def compile_file(source: Path, path: Path, *, is_embedded: bool) -> Path:
    """Compile a model by the plug-in into a file of its own, with what it made inside or beside."""
    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.add_provider_for_devices(onnx_plugins.devices(DEVICE, NAME), SETTINGS)
    options.add_session_config_entry("ep.context_enable", "1")
    options.add_session_config_entry("ep.context_file_path", str(path))
    options.add_session_config_entry("ep.context_embed_mode", str(int(is_embedded)))
    onnxruntime.InferenceSession(str(source), options)
    return path
