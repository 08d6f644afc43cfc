"""StageSource: one stage, in whichever form the compiler of its device takes."""

from __future__ import annotations

from typing import Any, Protocol

from pipeline.errors import BuildError


class StageSource(Protocol):
    """A stage that is to be built."""

    def module(self) -> Any:
        """Return its Relax module: ``main`` takes the stage's inputs and returns its outputs, in order."""

    def onnx(self) -> Any:
        """Return it as an ``onnx.ModelProto`` with the stage's inputs and outputs, by name and in order.

        Raises
        ------
        BuildError
            If it cannot be written so; the message says why.
        """

    def tflite(self) -> bytes:
        """Return it as the bytes of a TFLite model with the stage's inputs and outputs in order; raises as `onnx`."""


class ModuleSource:
    """A stage of which nothing but the Relax module is there."""

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
