"""The adapter of Hailo's NPUs, with a stand-in for HailoRT that runs the ONNX model with channels last."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Device
from pipeline.errors import BuildError
from pipeline.executor import devices
from tests.support.vendor_examples import check_frames, installed

PLATFORM = """
import enum
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnxruntime
from calls import CALLS

CHIPS = ["0000:01:00.0"]
FormatType = enum.Enum("FormatType", "FLOAT32 UINT8")
HailoSchedulingAlgorithm = enum.Enum("HailoSchedulingAlgorithm", "ROUND_ROBIN")


class Device:
    @staticmethod
    def scan():
        return CHIPS


class VDevice:
    def __init__(self, parameters):
        assert parameters.group_id == "SHARED"

    @staticmethod
    def create_params():
        return SimpleNamespace()

    def __enter__(self):
        CALLS.append("open device")
        return self

    def __exit__(self, *error):
        CALLS.append("close device")

    def create_infer_model(self, path):
        return InferModel(path)


class Stream:
    def __init__(self, shape):
        _, channels, height, width = shape
        self.shape, self.format = (height, width, channels), None

    def set_format_type(self, kind):
        self.format = kind


class InferModel:
    def __init__(self, path):
        content = Path(path).read_bytes()
        assert content.startswith(b"HEF ")
        self.session = onnxruntime.InferenceSession(content[4:], providers=["CPUExecutionProvider"])
        self.streams = {}
        for prefix, values in (("input", self.session.get_inputs()), ("output", self.session.get_outputs())):
            for number, value in enumerate(values, 1):
                self.streams[f"stage/{prefix}_layer{number}"] = Stream(value.shape)
        self.input_names = [name for name in self.streams if "input" in name]
        self.output_names = [name for name in self.streams if "output" in name]

    def input(self, name):
        return self.streams[name]

    output = input

    def configure(self):
        assert all(stream.format is FormatType.FLOAT32 for stream in self.streams.values())
        CALLS.append("configure")
        return Configured(self)


class Configured:
    def __init__(self, model):
        self.model = model

    def __enter__(self):
        return self

    def __exit__(self, *error):
        CALLS.append("release model")

    def create_bindings(self, output_buffers):
        return Bindings(self.model, output_buffers)

    def run(self, bindings, timeout_ms):
        assert timeout_ms == 10000
        (binding,) = bindings
        session = self.model.session
        frame = {
            value.name: binding.buffers[name].transpose(2, 0, 1)[None]
            for name, value in zip(self.model.input_names, session.get_inputs())
        }
        for name, result in zip(self.model.output_names, session.run(None, frame)):
            binding.outputs[name][...] = result[0].transpose(1, 2, 0)
        CALLS.append("run")


class Bindings:
    def __init__(self, model, outputs):
        self.model, self.outputs, self.buffers = model, outputs, {}

    def input(self, name):
        def set_buffer(array):
            assert array.shape == self.model.input(name).shape and array.flags.c_contiguous
            self.buffers[name] = array

        return SimpleNamespace(set_buffer=set_buffer)
"""

COMPILER = """
from pathlib import Path


class ClientRunner:
    def __init__(self, hw_arch):
        assert hw_arch == "hailo8l"

    def translate_onnx_model(self, path, name):
        assert name == "stage"
        self.model = Path(path).read_bytes()

    def optimize(self, inputs):
        assert {name: array.shape for name, array in inputs.items()} == {"stage/input_layer1": (5, 6, 7, 4)}
        self.optimized = True

    def compile(self):
        assert self.optimized
        return b"HEF " + self.model
"""

STAND_INS = {"hailo_platform.py": PLATFORM, "hailo_sdk_client.py": COMPILER}
COMMAND = f"{sys.executable} -m soc_pipeline_hailo {{stage}}.onnx {{artifact}} --target hailo8l"


@pytest.fixture
def calls(root: Path, tmp_path: Path) -> Iterator[list[Any]]:
    pytest.importorskip("onnxruntime")
    with installed(root, tmp_path / "site", "hailo", "HailoLoader", STAND_INS) as calls:
        yield calls


def test_it_runs_with_channels_last_and_closes_what_it_opened(calls: list[Any], tmp_path: Path) -> None:
    np.save(tmp_path / "stage1-b.npy", np.zeros((5, 4, 6, 7), np.float32))
    check_frames(tmp_path, "hailo", compile=f"{COMMAND} --calibration {tmp_path}", artifact="{stage}.hef")
    assert calls == ["open device", "configure", "run", "run", "run", "release model", "close device"]


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("", "add --calibration FOLDER to the command"),
        (" --calibration /", r"/ must have one file \*-b\.npy, and has 0"),
    ],
)
def test_typical_inputs_are_asked_for(tmp_path: Path, option: str, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        check_frames(tmp_path, "hailo", compile=COMMAND + option)


def test_a_missing_chip_is_named(calls: list[Any]) -> None:
    import hailo_platform  # type: ignore[import-not-found]

    device = Device("npu", "vendor", target={"loader": "hailo"})
    assert devices.why_absent(device) == ""
    hailo_platform.CHIPS.clear()
    assert devices.why_absent(device) == "HailoRT finds no chip"
    assert calls == []
