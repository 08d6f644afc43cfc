"""Activations of recurrent operators in TVM's tensor IR."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tvm import tirx

from pipeline.tvm.statements import constant

Activation = Callable[[Any, int], Any]
"""Takes a value and its number of lanes."""

# Alpha and beta where the model states none (ONNX, operators RNN, LSTM and GRU, attribute activation_alpha).
_DEFAULTS = {
    "Affine": (1.0, 0.0), "Elu": (1.0, 0.0), "HardSigmoid": (0.2, 0.5), "LeakyRelu": (0.01, 0.0),
    "ScaledTanh": (1.0, 1.0), "ThresholdedRelu": (1.0, 0.0),
}  # fmt: skip
_TAKES_BETA = {"Affine", "HardSigmoid", "ScaledTanh"}


class Function(NamedTuple):
    """An activation with its numbers."""

    kind: str
    alpha: float | None
    beta: float | None

    def activation(self) -> Activation:
        """Return the activation's expression."""
        function, alpha, beta = _FUNCTIONS[self.kind], self.alpha or 0.0, self.beta or 0.0
        return lambda value, lanes: function(value, constant(alpha, lanes), constant(beta, lanes), lanes)


def read(names: Sequence[str], alphas: Sequence[float], betas: Sequence[float]) -> list[Function]:
    """Return functions by name, with their alphas and betas in order.

    Raises `ValueError` if ONNX knows no such function.
    """
    more_alphas, more_betas = iter(alphas), iter(betas)
    return [_function(name, more_alphas, more_betas) for name in names]


def _function(name: str, alphas: Iterator[float], betas: Iterator[float]) -> Function:
    # ONNX Runtime takes any case.
    kind = next((kind for kind in _FUNCTIONS if kind.lower() == name.lower()), None)
    if kind is None:
        raise ValueError(f"with the activation {name!r}, which is none of {', '.join(_FUNCTIONS)}")
    if kind not in _DEFAULTS:
        return Function(kind, None, None)
    alpha, beta = _DEFAULTS[kind]
    alpha = float(next(alphas, alpha))
    return Function(kind, alpha, float(next(betas, beta)) if kind in _TAKES_BETA else None)


def clipped(activation: Activation, limit: float) -> Activation:
    """Return an activation with its argument clipped to ±`limit`; 0 is off."""
    if not limit:
        return activation
    return lambda value, lanes: activation(
        tirx.Max(tirx.Min(value, constant(limit, lanes)), constant(-limit, lanes)), lanes
    )


def _exponential_unit(value: Any, alpha: Any, lanes: int) -> Any:
    return tirx.Select(value >= constant(0.0, lanes), value, alpha * (tirx.exp(value) - constant(1.0, lanes)))


def _softplus(value: Any, lanes: int) -> Any:
    # Of the absolute value, so that no exponential is infinite.
    zero, unit = constant(0.0, lanes), constant(1.0, lanes)
    size = tirx.Max(value, zero - value)
    return tirx.Max(value, zero) + tirx.log(unit + tirx.exp(zero - size))


_FUNCTIONS: dict[str, Callable[[Any, Any, Any, int], Any]] = {
    "Relu": lambda x, _, __, lanes: tirx.Max(x, constant(0.0, lanes)),
    "Tanh": lambda x, *_: tirx.tanh(x),
    "Sigmoid": lambda x, *_: tirx.sigmoid(x),
    "Affine": lambda x, alpha, beta, _: alpha * x + beta,
    "LeakyRelu": lambda x, alpha, _, lanes: tirx.Select(x >= constant(0.0, lanes), x, alpha * x),
    "ThresholdedRelu": lambda x, alpha, _, lanes: tirx.Select(x >= alpha, x, constant(0.0, lanes)),
    "ScaledTanh": lambda x, alpha, beta, _: alpha * tirx.tanh(beta * x),
    "HardSigmoid": lambda x, alpha, beta, lanes: tirx.Max(
        tirx.Min(alpha * x + beta, constant(1.0, lanes)), constant(0.0, lanes)
    ),
    "Elu": lambda x, alpha, _, lanes: _exponential_unit(x, alpha, lanes),
    "Softsign": lambda x, _, __, lanes: x / (constant(1.0, lanes) + tirx.Max(x, constant(0.0, lanes) - x)),
    "Softplus": lambda x, _, __, lanes: _softplus(x, lanes),
}
