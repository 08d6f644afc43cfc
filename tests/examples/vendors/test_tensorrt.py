"""The adapter of TensorRT, with stand-ins for it and for CUDA, whose memory is this machine's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import PipelineError
from tests.support.vendor_examples import check_frames, installed

CUDA = """
import ctypes
import enum
from types import SimpleNamespace

from calls import CALLS

cudaError_t = enum.Enum("cudaError_t", {"cudaSuccess": 0, "cudaErrorInvalidValue": 1})
cudaMemcpyKind = enum.Enum("cudaMemcpyKind", "cudaMemcpyHostToDevice cudaMemcpyDeviceToHost")
OK = cudaError_t.cudaSuccess
BUFFERS = {}
STREAM = 77


def cudaGetDeviceCount():
    return OK, 1


def cudaStreamCreate():
    return OK, STREAM


def cudaMalloc(size):
    buffer = ctypes.create_string_buffer(size)
    BUFFERS[ctypes.addressof(buffer)] = buffer
    return OK, ctypes.addressof(buffer)


def cudaMemcpyAsync(target, source, size, kind, stream):
    on_device = target if kind is cudaMemcpyKind.cudaMemcpyHostToDevice else source
    assert stream == STREAM and len(BUFFERS[on_device]) == size
    ctypes.memmove(target, source, size)
    CALLS.append(kind.name)
    return (OK,)


def cudaStreamSynchronize(stream):
    CALLS.append("synchronize")
    return (OK,)


def cudaFree(pointer):
    return (OK if BUFFERS.pop(pointer, None) else cudaError_t.cudaErrorInvalidValue,)


def cudaStreamDestroy(stream):
    CALLS.append(f"destroy stream, {len(BUFFERS)} buffers left")
    return (OK,)
"""

TENSORRT = """
import ctypes

import numpy as np
import onnxruntime
from calls import CALLS


class Logger:
    WARNING = 2

    def __init__(self, level):
        pass


def nptype(dtype):
    return dtype


class Runtime:
    def __init__(self, logger):
        assert isinstance(logger, Logger)

    def deserialize_cuda_engine(self, content):
        try:
            return Engine(onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"]))
        except Exception:
            return None


class Engine:
    def __init__(self, session):
        self.session = session
        self.values = {value.name: value for value in (*session.get_inputs(), *session.get_outputs())}

    def get_tensor_dtype(self, name):
        return np.float32

    def get_tensor_shape(self, name):
        return self.values[name].shape

    def create_execution_context(self):
        return Context(self)


class Context:
    def __init__(self, engine):
        self.engine, self.addresses = engine, {}

    def set_tensor_address(self, name, pointer):
        self.addresses[name] = pointer
        return True

    def execute_async_v3(self, stream):
        assert stream == 77 and self.addresses.keys() == self.engine.values.keys()
        session = self.engine.session
        frame = {value.name: self.array(value).copy() for value in session.get_inputs()}
        for value, result in zip(session.get_outputs(), session.run(None, frame)):
            self.array(value)[...] = result
        CALLS.append("execute")
        return True

    def array(self, value):
        pointer = ctypes.cast(self.addresses[value.name], ctypes.POINTER(ctypes.c_float))
        return np.ctypeslib.as_array(pointer, value.shape)
"""

STAND_INS = {
    "cuda/__init__.py": "",
    "cuda/bindings/__init__.py": "",
    "cuda/bindings/runtime.py": CUDA,
    "tensorrt.py": TENSORRT,
}


@pytest.fixture
def calls(root: Path, tmp_path: Path) -> Iterator[list[Any]]:
    pytest.importorskip("onnxruntime")
    with installed(root, tmp_path / "site", "tensorrt", "TensorRtLoader", STAND_INS) as calls:
        yield calls


def test_it_copies_runs_and_gives_all_memory_back(calls: list[Any], tmp_path: Path) -> None:
    check_frames(tmp_path, "tensorrt", compile="cp {stage}.onnx {artifact}", artifact="{stage}.engine")
    frame = ["cudaMemcpyHostToDevice", "execute", "cudaMemcpyDeviceToHost", "synchronize"]
    assert calls == [*frame * 3, "destroy stream, 0 buffers left"]


@pytest.mark.usefixtures("calls")
def test_an_engine_of_another_version_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="TensorRT does not take the engine; was it made by this version"):
        check_frames(tmp_path, "tensorrt", compile="cp /etc/hostname {artifact}")
