"""Packed models: operators that the model's own runtime computes inside of a stage, as an operand of a call.

A stage calls one function for all of them, and hands it the operators' model as its first operand: bytes, behind their
SHA-256.  So they travel with a stage's parameters, wherever those go, and are found again by the digest.
"""

from __future__ import annotations

import hashlib

import numpy as np

FUNCTION = "soc_pipeline.onnxruntime"
"""Name of the function, in TVM's registry, that runs a model of ONNX by ONNX Runtime."""

KIND = "onnxruntime"
"""Kind of the operators of a graph that call it."""

DIGEST_BYTES = 32


def pack(model: bytes) -> np.ndarray:
    """Return a model as the operand of a call."""
    return np.frombuffer(hashlib.sha256(model).digest() + model, np.uint8)


def digest(operand: np.ndarray) -> bytes:
    """Return what tells a packed model from others."""
    return operand[:DIGEST_BYTES].tobytes()


def unpack(operand: np.ndarray) -> bytes:
    """Return the model's bytes."""
    return operand[DIGEST_BYTES:].tobytes()
