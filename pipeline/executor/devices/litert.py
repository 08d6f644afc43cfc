"""LiteRT with its own kernels or a delegate: Edge TPU, Teflon, VX, Ethos-U, ..."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError
from pipeline.executor.devices.model_runtime import (
    ModelRuntime,
    OpenedModel,
    describe_locations,
    table_of_options,
)
from pipeline.executor.devices.model_tool import ModelTool
from pipeline.executor.stage_code import StageCode
from pipeline.executor.stage_source import StageSource
from pipeline.system.native_output import quietly
from pipeline.system.optional import require

_DELEGATE = "DELEGATE"

# Held while a delegate is taken into use by an interpreter: it may note there what it has.
_delegate_lock = threading.Lock()


class LiteRtRuntime(ModelRuntime):
    """Runs stages by LiteRT.

    The target has ``delegate``, the file of an external delegate's library, and ``options`` for that; by default there
    is none, and the CPU computes.  Where a delegate takes only what its own compiler made, such as the Edge TPU's, the
    target has that command, see `pipeline.executor.devices.model_tool.ModelTool`, and may have ``quotes``, the
    compiler that counts cycles.
    """

    title = "LiteRT"
    package = "ai_edge_litert"
    extra = "litert"
    target_keys = ("delegate", "options", "quotes", "compile", "artifact", "time_limit_s")

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target is none."""
        super().check(device)
        if not isinstance(_delegate_file(device), str):
            raise BoardError(f"delegate is {_delegate_file(device)!r}; it must be the file of a library")
        _delegate_options(device)
        ModelTool.of(device, "tflite")

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return the built-in targets."""
        return ("its own kernels",)

    @classmethod
    def why_unusable(cls, device: Device) -> str:
        """Explain why the delegate cannot be loaded here."""
        try:
            _delegates(device)
        except (OSError, ValueError, RuntimeError) as error:
            return f"the delegate {_delegate_file(device)!r} cannot be loaded: {error}"
        return ""

    @classmethod
    def compile_stage(cls, source: StageSource, device: Device) -> StageCode:
        """Write a stage as a model, for the delegate's compiler if named."""
        tool = ModelTool.of(device, "tflite")
        if not tool.compile or source.compiled():
            return super().compile_stage(source, device)
        original = cls._serialize_checked(source, device)
        model = tool.compile_model(original)
        # The delegate takes nothing that was not compiled, so that it is asked no earlier.
        if cls.is_here(device):
            cls._check_fallbacks(model, device)
        cls._refuse_fallbacks(describe_locations(_find_uncompiled(original, model)), device)
        return cls._stage_code(model, ".tflite", cls.version())

    @staticmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return the delegate's fallbacks to the CPU."""
        # Without its default delegate, which would take what the device's own leaves.
        resolver = _library().OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
        interpreter = _open_interpreter(model, device, 1, experimental_op_resolver_type=resolver)
        operators = interpreter._get_ops_details() if _delegate_file(device) else []  # noqa: SLF001 - nobody else knows
        names = {detail["index"]: detail["name"] for detail in interpreter.get_tensor_details()}
        outputs = {
            operator["index"]: ", ".join(names.get(int(tensor), "?") for tensor in operator["outputs"])
            for operator in operators
        }
        return {
            f"{outputs[operator['index']]} of kind {operator['op_name']}, operator {operator['index']}": "the CPU"
            for operator in find_undelegated(operators)
        }

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Test for a delegate without ahead-of-time compiler."""
        is_asked = _delegate_file(device) and "compile" not in (device.target or {})
        return bool(is_asked) and super().is_selective(device)

    @classmethod
    def driver_file(cls, device: Device) -> str:
        """Return the delegate's file."""
        return str(_delegate_file(device))

    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Open an interpreter for the calling thread alone."""
        interpreter = _open_interpreter(model, self.device, len(cores) or 1)
        inputs = [detail["index"] for detail in interpreter.get_input_details()]
        outputs = [detail["index"] for detail in interpreter.get_output_details()]
        if (len(inputs), len(outputs)) != (len(stage.inputs), len(stage.outputs)):
            raise ValueError(f"it has {len(inputs)} inputs and {len(outputs)} outputs, unlike the stage")

        def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            for index, array in zip(inputs, arrays, strict=True):
                interpreter.set_tensor(index, array)
            interpreter.invoke()
            return [interpreter.get_tensor(index) for index in outputs]

        return OpenedModel(compute)


def _find_uncompiled(original: bytes, compiled: bytes) -> dict[str, str]:
    """Return the operators that a compiler has left in a TFLite file as they were."""
    if compiled[4:8] != b"TFL3":
        return {}
    from pipeline.frontends.tflite.flatbuffer import TfliteGraph

    # What it makes is a custom operator of a kind that the stage has not.
    kinds = {operator.kind for operator in TfliteGraph(original).operators}
    return {
        f"{', '.join(tensor.name for tensor in operator.outputs)} of kind {operator.kind}": "the CPU"
        for operator in TfliteGraph(compiled).operators
        if operator.kind in kinds or not operator.kind.startswith("CUSTOM")
    }


def find_undelegated(operators: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the operators without a delegate.

    An interpreter's operators are the model's own, and those that stand for a delegate's work.
    """
    own_operators = [operator for operator in operators if operator["op_name"] != _DELEGATE]
    makers = {int(tensor): operator for operator in own_operators for tensor in operator["outputs"]}
    delegated: set[int] = set()
    for delegate in (operator for operator in operators if operator["op_name"] == _DELEGATE):
        # From its results back to what it reads.
        read, pending = set(map(int, delegate["inputs"])), list(map(int, delegate["outputs"]))
        while pending:
            tensor = pending.pop()
            maker = makers.get(tensor)
            if tensor not in read and maker is not None and maker["index"] not in delegated:
                delegated.add(maker["index"])
                pending += map(int, maker["inputs"])
    return [operator for operator in own_operators if operator["index"] not in delegated]


def _open_interpreter(model: bytes, device: Device, threads: int, **options: Any) -> Any:
    library, delegates = _library(), _delegates(device)

    def open_interpreter() -> Any:
        interpreter = library.Interpreter(
            model_content=model, num_threads=threads, experimental_delegates=delegates, **options
        )
        interpreter.allocate_tensors()
        return interpreter

    with _delegate_lock if delegates else nullcontext():
        return quietly(open_interpreter)


def _delegates(device: Device) -> list[Any]:
    if not (file := _delegate_file(device)):
        return []
    # A bare name is looked for by the system's loader.
    path = str(Path(file).expanduser()) if "/" in file else file
    options = tuple((key, str(value)) for key, value in _delegate_options(device).items())
    with _delegate_lock:
        return [_load_delegate(path, options, os.getpid())]


@cache
def _load_delegate(path: str, options: tuple[tuple[str, str], ...], _: int) -> Any:
    """Load a delegate once per process: many drivers open their device exclusively."""
    # Where it fails to load one, its own object complains once more when it is collected.
    ctypes.CDLL(path)
    return _library().load_delegate(path, dict(options))


# Not later: it is given back by what the interpreter of Python takes down at its end.
atexit.register(_load_delegate.cache_clear)


def _delegate_file(device: Device) -> Any:
    return (device.target or {}).get("delegate", "")


def _delegate_options(device: Device) -> dict[str, Any]:
    return dict(table_of_options(device, "the delegate's options"))


def _library() -> Any:
    return require("ai_edge_litert.interpreter", "litert", "stages that LiteRT runs")
