"""Packed models: operators of the model's own runtime inside a stage.

A stage calls one function of each runtime for all such operators, and hands it the operators' model as its first
operand: bytes, behind their SHA-256.  So they travel with a stage's parameters, wherever those go, and are found again
by the digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from pipeline.system.distribution import install_command
from pipeline.system.optional import is_installed


class SourceRuntime(NamedTuple):
    """Library of a format's models: computes packed and whole ones."""

    kind: str
    """Name of its operators in a graph, and of its function in TVM's registry."""
    title: str
    package: str
    extra: str
    """Package to import, and the extra that installs it."""
    opener: str
    """Module with ``open_model(model, threads)``, which returns a function of the arrays of inputs and outputs."""
    shared: bool = True
    """True if several threads may compute one open model at once."""

    @property
    def is_installed(self) -> bool:
        """True if its package is installed."""
        return is_installed(self.package)

    @property
    def remedy(self) -> str:
        """Advice on missing operators; empty once installed."""
        if self.is_installed:
            return ""
        return f"; {self.title} computes them where it is installed: {install_command(self.extra)}"


ONNX_RUNTIME = SourceRuntime(
    "onnxruntime", "ONNX Runtime", "onnxruntime", "onnxruntime", "pipeline.executor.onnx_sessions"
)
LITERT = SourceRuntime(
    "litert", "LiteRT", "ai_edge_litert", "litert", "pipeline.executor.litert_interpreters", shared=False
)
PYTORCH = SourceRuntime("pytorch", "PyTorch", "torch", "torch", "pipeline.executor.torch_program")

RUNTIMES = {runtime.kind: runtime for runtime in (ONNX_RUNTIME, LITERT, PYTORCH)}
"""Libraries by kind. Bundles need them without the formats, so that they stand here; a format may bring another."""

FAMILIES = ("aten", "prims", "torchvision", "quantized_decomposed")
"""Namespaces of PyTorch operators that compute tensors; others may do anything."""

_NAMESPACE = "soc_pipeline."

DIGEST_BYTES = 32


computers: list[Callable[..., None]] = []
"""Function of a library and a packed model's operands; `pipeline.executor.source_runtimes` puts it here."""


def compute(kind: str, *operands: object) -> None:
    """Compute a packed model, called by compiled code."""
    computers[0](RUNTIMES[kind], *operands)


def function_name(kind: str) -> str:
    """Return the name of a kind's function in TVM's registry."""
    return _NAMESPACE + kind


def function_kind(name: str) -> str:
    """Return the kind of a function in TVM's registry, or ""."""
    kind = name.removeprefix(_NAMESPACE)
    return kind if name.startswith(_NAMESPACE) and kind in RUNTIMES else ""


def pack(model: bytes) -> np.ndarray:
    """Return a model as the operand of a call."""
    return np.frombuffer(hashlib.sha256(model).digest() + model, np.uint8)


def digest(operand: np.ndarray) -> bytes:
    """Return the fingerprint of a packed model."""
    return operand[:DIGEST_BYTES].tobytes()


def unpack(operand: np.ndarray) -> bytes:
    """Return the model's bytes."""
    return operand[DIGEST_BYTES:].tobytes()


class PackedPart(NamedTuple):
    """A packed model to be merged with others.

    `inputs` and `outputs`: numbers of the values, in the order of the model's own; parts have the same number for the
    same value.
    """

    model: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
