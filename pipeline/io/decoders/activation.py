"""Activation: from a network's last numbers to scores of 0 to 1."""

from __future__ import annotations

import numpy as np

from pipeline.errors import InputError

ACTIVATIONS = ("auto", "none", "sigmoid", "softmax")

_SLACK = 0.01
"""Distance of quantised probabilities from 0 and 1, which their scale may miss."""


def check_activation(name: str) -> None:
    """Raise `InputError` unless there is such an activation."""
    if name not in ACTIVATIONS:
        raise InputError(f"activation is {name!r}; it must be {', '.join(ACTIVATIONS[:-1])} or {ACTIVATIONS[-1]}")


def activate(values: np.ndarray, activation: str, axis: int) -> np.ndarray:
    """Return scores of 0 to 1, with the classes along `axis`.

    The activation ``"auto"`` goes by the values: those from 0 to 1 are scores already, others are logits, of which
    several classes have a softmax, and a single one has a sigmoid.
    """
    values = np.asarray(values, np.float32)
    if activation == "auto":
        scored = not values.size or (values.min() >= -_SLACK and values.max() <= 1 + _SLACK)
        activation = "none" if scored else "sigmoid" if values.shape[axis] == 1 else "softmax"
    if activation == "sigmoid":
        # Large negative logits overflow in the exponential, whose limit is right.
        with np.errstate(over="ignore"):
            values = 1 / (1 + np.exp(-values))
    if activation == "softmax":
        # Less the largest, so that no exponential overflows.
        exponentials = np.exp(values - values.max(axis, keepdims=True))
        values = exponentials / exponentials.sum(axis, keepdims=True)
    return values


def logit(score: float) -> float:
    """Return the number whose sigmoid is a score, so that thresholds need no sigmoids of others."""
    with np.errstate(divide="ignore"):
        return float(np.log(score) - np.log1p(-score))
