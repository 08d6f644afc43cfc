"""OpenVINO: Intel's CPUs, GPUs and NPUs."""

from __future__ import annotations

import atexit
import os
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError
from pipeline.executor.devices.model_runtime import (
    ModelRuntime,
    OpenedModel,
    allows_fallback,
    check_order,
    table_of_options,
)
from pipeline.system.optional import require

VIRTUAL = ("AUTO", "BATCH", "HETERO", "MULTI")
"""Virtual devices of OpenVINO: a choice among others. Plain ones take all of a model or refuse it."""


class OpenVinoRuntime(ModelRuntime):
    """Runs stages by OpenVINO.

    The target has ``device``, such as ``"NPU"`` or ``"GPU.1"``, by default ``"CPU"``; and ``options``, properties of
    the compiled model.  OpenVINO's own choices among devices, such as ``"AUTO:NPU,CPU"``, run on the CPU without a word
    where the NPU is missing, so that they need ``allow_fallback``.
    """

    title = "OpenVINO"
    package = extra = "openvino"
    target_keys = ("device", "options")

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target is none."""
        super().check(device)
        name = _device_name(device)
        if not isinstance(name, str):
            raise BoardError(f"device is {name!r}; it must be a name, such as 'NPU'")
        if _is_virtual(name) and not allows_fallback(device):
            raise BoardError(
                f"device is {name!r}, by which OpenVINO chooses where operators run; name one device, such as 'NPU', "
                "or set allow_fallback = true in the target"
            )
        _properties(device, 1)

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return OpenVINO's devices."""
        names: list[str] = _core().available_devices
        return names

    @classmethod
    def why_unusable(cls, device: Device) -> str:
        """Explain if OpenVINO lacks the device here."""
        available = cls.find_targets()
        name = _device_name(device)
        if _is_virtual(name):
            return ""
        # It numbers devices of a kind from 0 where there are several, and leaves the number out otherwise.
        if name in available or name in {device_name.partition(".")[0] for device_name in available}:
            return ""
        return f"OpenVINO finds no device {name!r} here; it finds {', '.join(available) or 'none'}"

    @staticmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return the operators unsupported by the device."""
        # Not every board comes from a file that was checked; and its choices support all that any device does.
        OpenVinoRuntime.check(device)
        core = _core()
        graph = core.read_model(model)
        supported = core.query_model(graph, _device_name(device))
        return {
            f"{node.get_friendly_name()} of kind {node.get_type_name()}": "not supported"
            for node in graph.get_ops()
            if node.get_friendly_name() not in supported
        }

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Return True for all but the CPU."""
        return _device_name(device) != "CPU" and super().is_selective(device)

    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Compile the model."""
        core = _core()
        compiled_model = core.compile_model(
            core.read_model(model),
            _device_name(self.device),
            _properties(self.device, len(cores) or 1, is_narrow=stage.options.precision in {"bfloat16", "auto"}),
        )
        check_order("inputs", [port.get_any_name() for port in compiled_model.inputs], stage.inputs)
        check_order("outputs", [port.get_any_name() for port in compiled_model.outputs], stage.outputs)
        request = compiled_model.create_infer_request()

        def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            # Inputs are read where they are; outputs are copied, since the next frame overwrites the request's own.
            results = request.infer([np.ascontiguousarray(array) for array in arrays], share_inputs=True)
            return [results[port] for port in compiled_model.outputs]

        return OpenedModel(compute, request.cancel)


def _is_virtual(name: str) -> bool:
    return name.partition(":")[0] in VIRTUAL


def _device_name(device: Device) -> Any:
    return (device.target or {}).get("device", "CPU")


def _properties(device: Device, threads: int, *, is_narrow: bool = False) -> dict[str, Any]:
    options = table_of_options(device, "OpenVINO's properties")
    properties: dict[str, Any] = {"PERFORMANCE_HINT": "LATENCY"}
    if _device_name(device) == "CPU":
        # Threads of its own choice of cores would be on those of other stages.
        properties |= {"INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}
        # bfloat16 is its default where the processor has it.
        properties |= {} if is_narrow else {"INFERENCE_PRECISION_HINT": "f32"}
    return {**properties, **options}


def _core() -> Any:
    """Return OpenVINO's core, one per process: threads share it, children cannot."""
    return _core_of_process(os.getpid())


@cache
def _core_of_process(_: int) -> Any:
    return require("openvino", "openvino", "stages that OpenVINO runs").Core()


atexit.register(_core_of_process.cache_clear)
