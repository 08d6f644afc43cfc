"""ModelRuntime: devices with stages as models of another runtime's format."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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

QUOTE_KEYS = ("compiler", "chip", "clock_hz")
"""Keys of a target's ``quotes``, see `pipeline.measure.quotes`."""


class OpenedModel(NamedTuple):
    """A stage's model in its runtime."""

    compute: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
    """Takes the inputs' arrays in order, and returns the outputs', which nobody else changes."""
    stop: Callable[[], None] = lambda: None
    """Ends a call that hangs; called in another thread."""


class ModelRuntime(NullRuntime, OwnCompiler):
    """Runs stages as separate models, on arrays."""

    # The runtime's name, its package, and the extra that installs it.
    title: ClassVar[str]
    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""
    target_keys: ClassVar[tuple[str, ...]]
    """Keys of a device's target beside its ``kind``."""

    def __init__(self, device: Device) -> None:
        super().__init__(device)
        self._models: list[OpenedModel] = []
        self._cores: tuple[int, ...] = ()

    @property
    def occupies_cores(self) -> bool:
        """True if the model runs on the board's listed host cores."""
        return bool(self.device.cores)

    @classmethod
    def model_format(cls, device: Device) -> str:
        """Return the format of stage models, ``"onnx"`` or ``"tflite"``."""
        return device.capabilities.model_format

    @classmethod
    def serialize(cls, source: StageSource, device: Device) -> bytes:
        """Serialise a stage as a model; raise `BuildError` if impossible."""
        if cls.model_format(device) == "tflite":
            return source.tflite()
        model: bytes = source.onnx().SerializeToString()
        return model

    @staticmethod
    @abstractmethod
    def find_fallbacks(model: bytes, device: Device) -> Mapping[str, str]:
        """Return the operators off the target's device, with their actual device."""

    @classmethod
    def is_selective(cls, device: Device) -> bool:
        """Test if a present device may leave operators to others."""
        return cls.is_here(device) and not allows_fallback(device)

    @classmethod
    def driver_file(cls, device: Device) -> str:  # noqa: ARG003 - most drivers come with their package
        """Return the file of a driver beside the package, empty without."""
        return ""

    @classmethod
    def fingerprint(cls, device: Device) -> str:
        """Return a text identifying all inputs to a device's answers."""
        file = Path(cls.driver_file(device)).expanduser()
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16] if file.is_file() else ""
        return f"{cls.version()} {digest}".strip()

    @abstractmethod
    def open_model(self, model: bytes, stage: StagePlan, cores: Sequence[int]) -> OpenedModel:
        """Load a model for host cores; raise any runtime error."""

    @classmethod
    def find_targets(cls) -> Sequence[str]:
        """Return the installed runtime's targets on this machine."""
        return ()

    @classmethod
    def why_unusable(cls, device: Device) -> str:  # noqa: ARG003 - most need no more than their package
        """Explain why an installed runtime cannot use a device's target here."""
        return ""

    @classmethod
    def why_absent(cls, device: Device) -> str:
        """Explain why stages of `device` cannot run here, empty if they can."""
        if not cls.is_installed():
            return f"{cls.title} is not installed; run: {install_command(cls.extra)}"
        return cls.why_unusable(device)

    @classmethod
    def check(cls, device: Device) -> None:
        """Raise `BoardError` for unknown target keys."""
        keys = ("kind", "allow_fallback", *cls.target_keys)
        for key in device.target or {}:
            if key not in keys:
                raise BoardError(f"its target has the key {key!r}; known are {', '.join(keys)}{near(key, keys)}")
        _check_quotes(device)

    @classmethod
    def is_here(cls, device: Device) -> bool:
        """Test if this machine can run stages of a device."""
        return not cls.why_absent(device)

    @classmethod
    def compile_stage(cls, source: StageSource, device: Device) -> StageCode:
        """Write a stage as a model, checked by the runtime if present.

        Raises `BuildError` if the stage has no such form, or operators would fall back to another processor than the
        target names.
        """
        model = cls._serialize_checked(source, device)
        if cls.is_here(device):
            cls._check_fallbacks(model, device)
        return cls._stage_code(model, f".{cls.model_format(device)}", cls.version())

    @classmethod
    def _serialize_checked(cls, source: StageSource, device: Device) -> bytes:
        model = source.compiled() or cls.serialize(source, device)
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
        """Return the runtime's name, with version if installed."""
        if not cls.is_installed():
            return cls.title
        version = getattr(require(cls.package, cls.extra, "its version"), "__version__", "")
        return f"{cls.title} {version}".strip()

    @classmethod
    def is_installed(cls) -> bool:
        """Test if the runtime's package is installed; no package means no."""
        return bool(cls.package) and is_installed(cls.package)

    @classmethod
    def _check_fallbacks(cls, model: bytes, device: Device) -> None:
        if not allows_fallback(device):
            cls._refuse_fallbacks(cls.describe_fallbacks(model, device), device)

    @classmethod
    def _refuse_fallbacks(cls, names: str, device: Device) -> None:
        if names and not allows_fallback(device):
            raise BuildError(
                f"{cls.title} would run operators elsewhere than on {device.name!r}: {names}; cut the model around "
                "them, or set allow_fallback = true in the device's target"
            )

    @classmethod
    def describe_fallbacks(cls, model: bytes, device: Device) -> str:
        """Describe `find_fallbacks` as text, empty without fallbacks.

        Raises `BuildError` if the runtime cannot tell, such as of a model that it does not take.
        """
        try:
            fallbacks = cls.find_fallbacks(model, device)
        except BuildError:
            raise
        except Exception as error:
            raise BuildError(f"{cls.title} cannot run it: {reason(error, line=0)}") from error
        return describe_locations(fallbacks)

    def open(self, cores: Sequence[int]) -> None:
        """Pin the calling thread and the runtime's threads to `cores`."""
        super().open(cores)
        self._cores = tuple(cores)

    def load(self, stage: StagePlan, code: StageCode | None) -> OpenedModel:
        """Open a stage's model.

        Raises `BundleError` if the runtime does not take it.
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
        """Abort a hanging call where the runtime can."""
        for model in self._models:
            model.stop()

    def close(self) -> None:
        """Forget the models."""
        self._models.clear()


def describe_locations(fallbacks: Mapping[str, str]) -> str:
    """List operators with their actual device."""
    return ", ".join(f"{name} ({location})" for name, location in fallbacks.items())


def allows_fallback(device: Device) -> bool:
    """Test if operators may run off the target's device."""
    return bool((device.target or {}).get("allow_fallback"))


def table_of_options(device: Device, purpose: str) -> Mapping[str, Any]:
    """Return a target's ``options``, or raise `BoardError` with their purpose."""
    options = (device.target or {}).get("options") or {}
    if not isinstance(options, Mapping):
        raise BoardError(f"options is {options!r}; it must be a table of {purpose}")
    return options


class ModelFile:
    """A model for `Bundle.save`, unchanged."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def export_library(self, path: str, **_: Any) -> None:
        """Write the model."""
        with open(path, "wb") as stream:  # noqa: PTH123 - as TVM's own, it takes text
            stream.write(self.content)


def check_order(title: str, names: Sequence[str], specs: Sequence[TensorSpec]) -> None:
    """Raise `BuildError` unless a model has exactly a stage's tensors."""
    if list(names) != [spec.name for spec in specs]:
        raise BuildError(f"its {title} are {list(names)}, and the stage's {[spec.name for spec in specs]}")


def _check_quotes(device: Device) -> None:
    quotes: Any = (device.target or {}).get("quotes")
    if quotes is None:
        return
    if not isinstance(quotes, Mapping) or set(quotes) != set(QUOTE_KEYS):
        raise BoardError(f"quotes is {quotes!r}; it must be a table of {', '.join(QUOTE_KEYS)}")
    if not isinstance(clock := quotes["clock_hz"], int | float) or not 0 < clock < math.inf:
        raise BoardError(f"clock_hz is {clock!r}; it must be cycles per second above 0")
