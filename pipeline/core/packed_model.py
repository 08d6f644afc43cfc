"""Packed models: operators of the model's own runtime inside a stage.

A stage calls one function of each runtime for all of them, and hands it the operators' model as its first operand:
bytes, behind their SHA-256.  So they travel with a stage's parameters, wherever those go, and are found again by the
digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

ONNX_RUNTIME = "onnxruntime"
"""Kind of the operators that ONNX Runtime computes."""

LITERT = "litert"
"""Kind of the operators that LiteRT computes."""

PYTORCH = "pytorch"
"""Kind of the operators that PyTorch computes."""

KINDS = (ONNX_RUNTIME, LITERT, PYTORCH)

FAMILIES = ("aten", "prims", "torchvision", "quantized_decomposed")
"""Namespaces of PyTorch operators that compute tensors; others may do anything."""

_NAMESPACE = "soc_pipeline."

DIGEST_BYTES = 32

computers: dict[str, Callable[..., None]] = {}
"""Functions that compute packed models, by kind; `pipeline.executor.source_runtimes` has them."""


def compute(kind: str, *operands: object) -> None:
    """Compute a packed model, called by compiled code."""
    computers[kind](*operands)


def function_name(kind: str) -> str:
    """Return the name of a kind's function in TVM's registry."""
    return _NAMESPACE + kind


def function_kind(name: str) -> str:
    """Return the kind of a function in TVM's registry, or ""."""
    kind = name.removeprefix(_NAMESPACE)
    return kind if name.startswith(_NAMESPACE) and kind in KINDS else ""


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

    Attributes
    ----------
    model : bytes
    inputs, outputs : tuple of int
        Numbers of the values, in the order of the model's own; parts have the same number for the same value.
    """

    model: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
