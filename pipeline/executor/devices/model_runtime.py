"""ModelRuntime: kinds of device whose stages are models in a format that a runtime of others reads."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan, TensorSpec
from pipeline.errors import BoardError, BuildError, BundleError, PipelineError, near, reason
from pipeline.executor.devices.base import OwnCompiler
from pipeline.executor.devices.null import NullRuntime
from pipeline.executor.stage_code import StageCode
from pipeline.executor.stage_source import StageSource
from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed, require

LARGEST = (1 << 31) - 1
"""Bytes of a model: more are not one message of Protocol Buffers, nor one flatbuffer."""


class OpenedModel(NamedTuple):
    """A stage's model in its runtime.

    Attributes
    ----------
    compute : callable
        Takes the inputs' arrays in order, and returns the outputs', which nobody else changes.
    stop : callable
        Ends a call that hangs; called in another thread.
    """

    compute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    stop: Callable[[], None] = lambda: None


class ModelRuntime(NullRuntime, OwnCompiler):
    """Runs each stage as a model of its own; tensors are arrays.

    Attributes
    ----------
    title, package, extra : str
        The runtime's name, its package, and the extra that installs it.
    target_keys : tuple of str
        What a device's target may have beside its ``kind``.
    """

    title: ClassVar[str]
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    target_keys: ClassVar[tuple[str, ...]]

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._models: list[OpenedModel] = []
        self._cores: tuple[int, ...] = ()

    @property
    def occupies_cores(self) -> bool:
        """True if the model runs on host cores, which the board lists then."""
        return bool(self.device.cores)

    @classmethod
    def model_format(cls, device: Device) -> str:
        """Return the format of its stages' models, ``"onnx"`` or ``"tflite"``."""
        return device.capabilities.model_format

    @classmethod
    def serialize(cls, source: StageSource, device: Device) -> bytes:
        """Return a stage as the bytes of a model; raise `BuildError` if it has no such form."""
        if cls.model_format(device) == "tflite":
            return source.tflite()
        model: bytes = source.onnx().SerializeToString()
        return model

    @staticmethod
    @abstractmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return the operators that would not run on what the device's target names, each with where it would."""

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Return True if a device has to be asked what it runs: it is here, and may leave operators to others."""
        return cls.is_here(device) and not allows_fallback(device)

    @classmethod
    def fingerprint(cls, device: Device) -> str:  # noqa: ARG003 - most drivers come with their package
        """Return a text that changes with whatever the answers of a device depend on."""
        return cls.version()

    @abstractmethod
    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Return a model ready to run on so many host cores; raise any error of the runtime."""

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return what the runtime, which is installed, can drive on this machine, in its own words."""
        return ()

    @classmethod
    def why_unusable(cls, device: Device) -> str:  # noqa: ARG003 - most need no more than their package
        """Return why this machine cannot run what a device's target names, though the package is installed."""
        return ""

    @classmethod
    def why_absent(cls, device: Device) -> str:
        """Return the reason why stages of `device` cannot run on this machine; empty if they can."""
        if not cls.is_installed():
            return f"{cls.title} is not installed; run: {install_command(cls.extra)}"
        return cls.why_unusable(device)

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` if the target has keys that mean nothing."""
        keys = ("kind", "allow_fallback", *cls.target_keys)
        for key in device.target or {}:
            if key not in keys:
                raise BoardError(f"its target has the key {key!r}; known are {', '.join(keys)}{near(key, keys)}")

    @classmethod
    def is_here(cls, device: Device) -> bool:
        """Return True if stages for a device can run on this machine."""
        return not cls.why_absent(device)

    @classmethod
    def compile_stage(cls, source: StageSource, device: Device) -> StageCode:
        """Write a stage as a model, and ask the runtime, if it is here, whether it runs all of it.

        Raises
        ------
        BuildError
            If the stage has no such form, or operators would fall back to another processor than the target names.
        """
        model = cls._serialize_checked(source, device)
        if cls.is_here(device):
            cls._check_fallbacks(model, device)
        return cls._stage_code(model, f".{cls.model_format(device)}", cls.version())

    @classmethod
    def _serialize_checked(cls, source: StageSource, device: Device) -> bytes:
        model = cls.serialize(source, device)
        if len(model) > LARGEST:
            raise BuildError(f"its model has {len(model)} bytes, and {cls.title} takes {LARGEST}; cut it into more")
        return model

    @staticmethod
    def _stage_code(content: bytes, suffix: str, version: str) -> StageCode:
        return StageCode(
            lambda: content,
            {},
            executable=ModelFile(content),
            suffix=suffix,
            runtime_version=version,
            calls=(),
        )

    @classmethod
    def version(cls) -> str:
        """Return the runtime's name, with its version where it is installed."""
        if not cls.is_installed():
            return cls.title
        version = getattr(require(cls.package, cls.extra, "its version"), "__version__", "")
        return f"{cls.title} {version}".strip()

    @classmethod
    def is_installed(cls) -> bool:
        """Return whether the runtime's package is there; what has none is not looked for."""
        return bool(cls.package) and is_installed(cls.package)

    @classmethod
    def _check_fallbacks(cls, model: bytes, device: Device) -> None:
        if not allows_fallback(device) and (names := cls.describe_fallbacks(model, device)):
            raise BuildError(
                f"{cls.title} would run operators elsewhere than on {device.name!r}: {names}; cut the model around "
                "them, or set allow_fallback = true in the device's target"
            )

    @classmethod
    def describe_fallbacks(cls, model: bytes, device: Device) -> str:
        """Return what `find_fallbacks` does as a text, empty if there are none.

        Raises
        ------
        BuildError
            If the runtime cannot tell, such as of a model that it does not take.
        """
        try:
            fallbacks = cls.find_fallbacks(model, device)
        except BuildError:
            raise
        except Exception as error:
            raise BuildError(f"{cls.title} cannot run it: {reason(error, line=0)}") from error
        return ", ".join(f"{name} ({place})" for name, place in fallbacks.items())

    def open(self, cores: Sequence[int]) -> None:
        """Keep the calling thread on `cores`, and with it those that the runtime starts."""
        super().open(cores)
        self._cores = tuple(cores)

    def load(self, stage: StagePlan, code: StageCode | None) -> OpenedModel:
        """Open a stage's model.

        Raises
        ------
        BundleError
            If the runtime does not take it.
        """
        if code is None:
            raise BuildError(f"stage {stage.name!r} has no model for {self.title}; build the bundle for this board")
        if absence := self.why_absent(self.device):
            raise PipelineError(f"stage {stage.name!r}: {absence}")
        model = code.executable.content if code.library is None else code.library.array.tobytes()
        try:
            opened = self.open_model(model, stage, self._cores)
        except Exception as error:
            title = code.file or stage.name
            raise BundleError(f"{title!r}: {self.title} cannot open it: {reason(error, line=0)}") from error
        self._models.append(opened)
        return opened

    def run(self, program: OpenedModel, inputs: Sequence[Any]) -> Sequence[Any]:
        """Run one frame."""
        return program.compute(inputs)

    def break_off(self) -> None:
        """End the call that hangs, where the runtime can."""
        for model in self._models:
            model.stop()

    def close(self) -> None:
        """Forget the models."""
        self._models.clear()


def allows_fallback(device: Device) -> bool:
    """Return True if operators may run elsewhere than on what a device's target names."""
    return bool((device.target or {}).get("allow_fallback"))


def table_of_options(device: Device, purpose: str) -> Mapping[str, Any]:
    """Return the ``options`` of a device's target; raise `BoardError`, which tells their purpose, if they are none."""
    options = (device.target or {}).get("options") or {}
    if not isinstance(options, Mapping):
        raise BoardError(f"options is {options!r}; it must be a table of {purpose}")
    return options


class ModelFile:
    """A model that `Bundle.save` writes as it is."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def export_library(self, path: str, **_: Any) -> None:
        """Write the model."""
        with open(path, "wb") as stream:  # noqa: PTH123 - as TVM's own, it takes text
            stream.write(self.content)


def check_order(title: str, names: Sequence[str], specs: Sequence[TensorSpec]) -> None:
    """Raise `BuildError` unless a model has just a stage's tensors."""
    if list(names) != [spec.name for spec in specs]:
        raise BuildError(f"its {title} are {list(names)}, and the stage's {[spec.name for spec in specs]}")
