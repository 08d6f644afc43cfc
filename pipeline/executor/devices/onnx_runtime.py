"""ONNX Runtime with any execution provider, built in or plug-in: CUDA, TensorRT, QNN, OpenVINO, WebGPU, ..."""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError, BuildError, near
from pipeline.executor.devices import onnx_plugins
from pipeline.executor.devices.model_runtime import (
    ModelRuntime,
    OpenedModel,
    check_order,
    describe_locations,
    table_of_options,
)
from pipeline.executor.stage_source import StageSource
from pipeline.system.memory import empty
from pipeline.system.optional import require

CPU = "CPUExecutionProvider"

Provider = tuple[str, dict[str, str]]


class OnnxRuntime(ModelRuntime):
    """Runs stages by ONNX Runtime.

    The target has ``providers``, a list of names or of pairs of a name and its options, by default the CPU's alone; and
    ``options``, entries of the session's configuration.  Plug-in providers come from ``library``, see
    `pipeline.executor.devices.onnx_plugins`, and may be restricted to a ``device``, such as ``"NPU"`` or ``"GPU.1"``.
    """

    title = "ONNX Runtime"
    package = extra = "onnxruntime"
    target_keys = ("providers", "options", "library", "device")

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target is none."""
        super().check(device)
        onnx_plugins.check(device, [name for name, _ in providers(device)])

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return this build's execution providers, and packages of plug-in ones."""
        names = (module.name for module in pkgutil.iter_modules() if module.name.startswith("onnxruntime_ep_"))
        return [*_library().get_available_providers(), *names]

    @classmethod
    def why_unusable(cls, device: Device) -> str:
        """Explain if this build of ONNX Runtime lacks a provider."""
        available = _library().get_available_providers()
        for name, _ in providers(device):
            if onnx_plugins.library(device) and name != CPU:
                try:
                    onnx_plugins.devices(device, name)
                except BuildError as error:
                    return str(error)
            elif name not in available:
                return f"this ONNX Runtime has no {name!r}; it has {', '.join(available)}{near(name, available)}"
        return ""

    @classmethod
    def serialize(cls, source: StageSource, device: Device) -> bytes:  # noqa: ARG003 - all take one format
        """Serialise a stage as a model with guards."""
        from pipeline.frontends.onnx.guards import add_guards

        model = source.onnx()
        add_guards(model.graph)
        serialized: bytes = model.SerializeToString()
        return serialized

    @staticmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return the nodes on providers outside the target."""
        return _fallbacks(_open_session(model, device, 1), device)

    @classmethod
    def driver_file(cls, device: Device) -> str:
        """Return the plug-in's file."""
        return onnx_plugins.library(device)

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Test if fallbacks could go elsewhere than to the CPU."""
        return CPU not in {name for name, _ in providers(device)} and super().is_selective(device)

    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Open a session."""
        # All threads but the calling one; they count cores from 1.
        affinities = ";".join(str(core + 1) for core in cores[1:])
        session = _open_session(model, self.device, len(cores) or 1, affinities)
        if self.is_selective(self.device):
            # This machine's provider may take less than the one that the stage was built by.
            self._refuse_fallbacks(describe_locations(_fallbacks(session, self.device)), self.device)
        check_order("inputs", [value.name for value in session.get_inputs()], stage.inputs)
        check_order("outputs", [value.name for value in session.get_outputs()], stage.outputs)
        run_options = _library().RunOptions()

        def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            # Bound to the arrays' own memory, from which and into which it would copy otherwise.
            binding = session.io_binding()
            contiguous = [np.ascontiguousarray(array) for array in arrays]
            for spec, array in zip(stage.inputs, contiguous, strict=True):
                binding.bind_input(spec.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            outputs = [empty(spec.shape, np.dtype(spec.dtype)) for spec in stage.outputs]
            for spec, array in zip(stage.outputs, outputs, strict=True):
                binding.bind_output(spec.name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
            session.run_with_iobinding(binding, run_options)
            return outputs

        def stop() -> None:
            run_options.terminate = True

        return OpenedModel(compute, stop)


def providers(device: Device) -> list[Provider]:
    """Return a device's execution providers, by default the CPU's, or raise `BoardError`."""
    entries = (device.target or {}).get("providers") or [CPU]
    if not isinstance(entries, Sequence) or isinstance(entries, str):
        raise BoardError(f"providers is {entries!r}; it must be a list, such as ['CUDAExecutionProvider']")
    return [_provider(entry) for entry in entries]


def _provider(entry: object) -> Provider:
    match entry:
        case str(name):
            return name, {}
        case [str(name), {**options}]:
            return name, {str(key): str(value) for key, value in options.items()}
    raise BoardError(f"provider {entry!r} is neither a name nor a pair of a name and a table of options")


def _open_session(model: bytes, device: Device, threads: int, affinities: str = "") -> Any:
    """Open a session of a device's providers."""
    options = _library().SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Errors alone: warnings go to the standard error, from C++.
    options.log_severity_level = 3
    # Between frames its threads would spin on cores that other stages need.
    entries = {"session.intra_op.allow_spinning": "0"}
    if affinities:
        entries["session.intra_op_thread_affinities"] = affinities
    # Last, since without it no operator would be found elsewhere.
    for key, value in {**entries, **_options(device), "session.record_ep_graph_assignment_info": "1"}.items():
        options.add_session_config_entry(str(key), str(value))
    if not onnx_plugins.library(device):
        return _library().InferenceSession(model, options, providers=providers(device))
    for name, settings in providers(device):
        if name != CPU:
            options.add_provider_for_devices(onnx_plugins.devices(device, name), settings)
    return _library().InferenceSession(model, options)


def _fallbacks(session: Any, device: Device) -> dict[str, str]:
    """Return the nodes on providers outside the target."""
    names = {name for name, _ in providers(device)}
    return {
        f"{node.name or node.op_type} of kind {node.op_type}": str(part.ep_name)
        for part in session.get_provider_graph_assignment_info()
        if part.ep_name not in names
        for node in part.get_nodes()
    }


def _options(device: Device) -> Mapping[str, Any]:
    return table_of_options(device, "the session's configuration")


def _library() -> Any:
    return require("onnxruntime", "onnxruntime", "stages that ONNX Runtime runs")
