"""StageSource: a stage in its compiler's form."""

from __future__ import annotations

from typing import Any, Protocol

from pipeline.errors import BuildError


class StageSource(Protocol):
    """A stage to build."""

    def module(self) -> Any:
        """Return the Relax module; ``main`` has the stage's inputs and outputs."""

    def onnx(self) -> Any:
        """Return an ``onnx.ModelProto`` with the stage's inputs and outputs, in order, or raise `BuildError`."""

    def tflite(self) -> bytes:
        """Return a TFLite model with inputs and outputs in order; raises as `onnx`."""

    def compiled(self) -> bytes:
        """Return the compiled file that the stage is, or nothing."""


class ModuleSource:
    """A stage with only its Relax module."""

    def __init__(self, module: Any) -> None:
        self._module = module

    def module(self) -> Any:
        """Return the module."""
        return self._module

    def onnx(self) -> Any:
        """Raise `BuildError`."""
        raise BuildError("it is a Relax module alone, and cannot be written as ONNX")

    def tflite(self) -> bytes:
        """Raise `BuildError`."""
        raise BuildError("it is a Relax module alone, and cannot be written as TFLite")

    def compiled(self) -> bytes:
        """Return nothing."""
        return b""
