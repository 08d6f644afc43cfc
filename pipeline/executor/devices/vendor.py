"""Vendor devices: compiled by a command, run by another package's loader."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.errors import BoardError, BundleError, PipelineError, near, reason
from pipeline.executor.devices import vendor_loader
from pipeline.executor.devices.model_runtime import ModelRuntime, OpenedModel, allows_fallback, table_of_options
from pipeline.executor.devices.model_tool import TOOL_KEYS, ModelTool
from pipeline.executor.devices.vendor_loader import Loader, find_loader
from pipeline.executor.stage_code import StageCode
from pipeline.executor.stage_source import StageSource
from pipeline.system.entry_points import entry_owner

FORMATS = ("onnx", "tflite")
"""Model formats for tools."""

ARTIFACT = ".artifact"

# Never a module: what a plan or a bundle says must not name code to import.
_NAME = re.compile(r"[\w.-]+", re.ASCII)


class VendorRuntime(ModelRuntime):
    """Runs stages by a loader, see `pipeline.executor.devices.vendor_loader.Loader`.

    The target has ``loader``, its name; ``chip``, or several, whose compiled files it takes; ``format`` of the stage's
    model, ``"onnx"`` by default; ``compile``, the command that makes the artifact of it, without which the model is
    what is loaded; ``artifact``, the name of that file; ``supported``, the command that prints nodes it cannot take;
    ``quotes``, the compiler that counts cycles;
    ``time_limit_s`` of each command; and ``options`` of the loader.
    """

    title = "the vendor's tool"
    target_keys = ("loader", "chip", "format", "options", "quotes", *TOOL_KEYS)
    # Some drivers compile the rest when they load.
    opening_s = 60.0

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._loader: Loader | None = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target is none."""
        super().check(device)
        _loader_name(device)
        _options(device)
        _tool(device)

    @classmethod
    def why_absent(cls, device: Device) -> str:
        """Explain why stages of `device` cannot run here, empty if they can."""
        return vendor_loader.why_absent(_loader_name(device), _options(device))

    @classmethod
    def model_format(cls, device: Device) -> str:
        """Return the target's format."""
        return _model_format(device)

    @staticmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return the nodes refused by the tool."""
        return dict.fromkeys(_tool(device).find_unsupported(model), "it cannot take it")

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Test for a command to ask; it needs no device."""
        return bool(_tool(device).supported) and not allows_fallback(device)

    @classmethod
    def compile_stage(cls, source: StageSource, device: Device) -> StageCode:
        """Write a stage as a model and compile it by the vendor's tool.

        Raises `BuildError` if the stage has no such form, or the tool cannot take it, fails, or takes too long.
        """
        tool = _tool(device)
        model = cls._serialize_checked(source, device)
        if not source.compiled():
            cls._check_fallbacks(model, device)
            model = tool.compile_model(model)
        suffix = ARTIFACT if tool.compile or source.compiled() else f".{_model_format(device)}"
        name = _loader_name(device)
        owner = entry_owner(vendor_loader.GROUP, name)
        version = f"loader {name}{f' ({owner})' if owner else ''}"
        return cls._stage_code(model, suffix, version)

    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Hand a stage's artifact to the loader."""
        if self._loader is None:
            self._loader = find_loader(_loader_name(self.device))(_options(self.device), cores)
            self._folder = tempfile.TemporaryDirectory(prefix="soc-pipeline-")
        loader, name = self._loader, _loader_name(self.device)
        # A file of its own, since what is run has to be what was verified; closed with the device.
        folder = Path(tempfile.mkdtemp(dir=self._folder.name if self._folder else None))
        artifact = folder / _tool(self.device).artifact_file
        artifact.write_bytes(model)
        program = loader.open(artifact, stage.inputs, stage.outputs)

        def compute(arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
            try:
                outputs = loader.run(program, [np.ascontiguousarray(array) for array in arrays])
            except Exception as error:
                raise PipelineError(f"the loader {name!r} cannot run it: {reason(error, line=0)}") from error
            return _check_outputs(outputs, stage, name)

        return OpenedModel(compute, getattr(loader, "stop", lambda: None))

    def close(self) -> None:
        """Close the loader and remove its files."""
        super().close()
        loader, folder = self._loader, self._folder
        self._loader = self._folder = None
        try:
            if loader is not None:
                loader.close()
        finally:
            if folder is not None:
                folder.cleanup()


def _check_outputs(outputs: Sequence[np.ndarray], stage: StagePlan, loader: str) -> Sequence[np.ndarray]:
    """Return a loader's outputs, or raise `BundleError` on a mismatch."""
    results = [f"{array.dtype}{list(array.shape)}" for array in outputs]
    specs = [f"{spec.dtype}{list(spec.shape)}" for spec in stage.outputs]
    if results != specs:
        raise BundleError(
            f"the loader {loader!r} returned {', '.join(results) or 'nothing'}, and not "
            f"{', '.join(specs)}; build the bundle again, or correct the loader"
        )
    return outputs


def _tool(device: Device) -> ModelTool:
    return ModelTool.of(device, _model_format(device))


def _model_format(device: Device) -> str:
    model_format = (device.target or {}).get("format", FORMATS[0])
    if model_format not in FORMATS:
        raise BoardError(
            f"format is {model_format!r}; it must be one of {', '.join(FORMATS)}{near(str(model_format), FORMATS)}"
        )
    return str(model_format)


def _loader_name(device: Device) -> str:
    name = (device.target or {}).get("loader")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BoardError(
            f"loader is {name!r}; it must be the name of an entry point of the group {vendor_loader.GROUP!r}, such as "
            "'rknn'"
        )
    return name


def _options(device: Device) -> Mapping[str, Any]:
    return table_of_options(device, "the loader's options")
