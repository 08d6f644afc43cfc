"""Packed models: operators that the model's own runtime computes inside of a stage, as an operand of a call.

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
"""Kind of the operators of a graph that ONNX Runtime computes."""

LITERT = "litert"
"""Kind of those that LiteRT computes."""

PYTORCH = "pytorch"
"""Kind of those that PyTorch computes."""

KINDS = (ONNX_RUNTIME, LITERT, PYTORCH)

FAMILIES = ("aten", "prims", "torchvision", "quantized_decomposed")
"""Of PyTorch's operators, those that compute tensors; others may do anything."""

_NAMESPACE = "soc_pipeline."

DIGEST_BYTES = 32

computers: dict[str, Callable[..., None]] = {}
"""Functions that compute packed models, by kind; `pipeline.executor.source_runtimes` has them."""


def compute(kind: str, *operands: object) -> None:
    """Compute a packed model; compiled code calls it by the name of the kind's function."""
    computers[kind](*operands)


def function_name(kind: str) -> str:
    """Return the name of the function, in TVM's registry, that computes operators of this kind."""
    return _NAMESPACE + kind


def function_kind(name: str) -> str:
    """Return the kind of the operators that a function of TVM's registry computes; empty if it is none of ours."""
    kind = name.removeprefix(_NAMESPACE)
    return kind if name.startswith(_NAMESPACE) and kind in KINDS else ""


def pack(model: bytes) -> np.ndarray:
    """Return a model as the operand of a call."""
    return np.frombuffer(hashlib.sha256(model).digest() + model, np.uint8)


def digest(operand: np.ndarray) -> bytes:
    """Return what tells a packed model from others."""
    return operand[:DIGEST_BYTES].tobytes()


def unpack(operand: np.ndarray) -> bytes:
    """Return the model's bytes."""
    return operand[DIGEST_BYTES:].tobytes()


class PackedPart(NamedTuple):
    """A packed model among others that are to become one.

    Attributes
    ----------
    model : bytes
    inputs, outputs : tuple of int
        Numbers of the values, in the order of the model's own; parts have the same number for the same value.
    """

    model: bytes
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
