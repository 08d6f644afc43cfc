"""ONNX Runtime with any execution provider: CUDA, TensorRT, QNN, OpenVINO, ACL, XNNPACK, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError, near
from pipeline.executor.devices.model_runtime import ModelRuntime, OpenedModel, check_order, table_of_options
from pipeline.executor.stage_source import StageSource
from pipeline.system.memory import empty
from pipeline.system.optional import require

CPU = "CPUExecutionProvider"

Provider = tuple[str, dict[str, str]]


class OnnxRuntime(ModelRuntime):
    """Runs stages by ONNX Runtime.

    The target has ``providers``, a list of names or of pairs of a name and its options, by default the CPU's alone; and
    ``options``, entries of the session's configuration.
    """

    title = "ONNX Runtime"
    package = extra = "onnxruntime"
    target_keys = ("providers", "options")

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target is none."""
        super().check(device)
        providers(device)

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return this build's execution providers."""
        providers: list[str] = _library().get_available_providers()
        return providers

    @classmethod
    def why_unusable(cls, device: Device) -> str:
        """Explain if this build of ONNX Runtime lacks a provider."""
        available = cls.find_targets()
        for name, _ in providers(device):
            if name not in available:
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
        names = {name for name, _ in providers(device)}
        options = session_options(device, 1)
        options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
        session = _library().InferenceSession(model, options, providers=providers(device))
        return {
            f"{node.name or node.op_type} of kind {node.op_type}": str(part.ep_name)
            for part in session.get_provider_graph_assignment_info()
            if part.ep_name not in names
            for node in part.get_nodes()
        }

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Test if fallbacks could go elsewhere than to the CPU."""
        return CPU not in {name for name, _ in providers(device)} and super().is_selective(device)

    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Open a session."""
        library = _library()
        options = session_options(self.device, len(cores) or 1)
        if len(cores) > 1:
            # All threads but the calling one; they count cores from 1.
            affinities = ";".join(str(core + 1) for core in cores[1:])
            options.add_session_config_entry("session.intra_op_thread_affinities", affinities)
        session = library.InferenceSession(model, options, providers=providers(self.device))
        check_order("inputs", [value.name for value in session.get_inputs()], stage.inputs)
        check_order("outputs", [value.name for value in session.get_outputs()], stage.outputs)
        run_options = library.RunOptions()

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


def session_options(device: Device, threads: int) -> Any:
    """Return a device's session options for a thread count."""
    options = _library().SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    # Errors alone: warnings go to the standard error, from C++.
    options.log_severity_level = 3
    entries = table_of_options(device, "the session's configuration")
    # Between frames its threads would spin on cores that other stages need.
    for key, value in {"session.intra_op.allow_spinning": "0", **entries}.items():
        options.add_session_config_entry(str(key), str(value))
    return options


def _library() -> Any:
    return require("onnxruntime", "onnxruntime", "stages that ONNX Runtime runs")
