"""Bounds: exponents of an ONNX model's scales for an accelerator's integers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.core.scale_limits import Exponents, ScaleLimits
from pipeline.quantization.floats import axis_of

Arrays = Mapping[str, npt.NDArray[Any]]

_PASSING = ("Relu", "Clip", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
"""Operators between sums and their quantisers."""

_SUMMING = ("Add", "Sub")
_ROUNDS = 64
"""Most passes over a model, each of which may raise the scales of further tensors; they end long before."""


@dataclass(frozen=True)
class Layer:
    """A product with constant weights, and its quantisation."""

    weights: str
    """The weights' bytes."""
    scale: str
    source: str
    """Names of the scales of the weights and of the input."""
    results: tuple[str, ...]
    """Names of the scales that the results get."""
    axis: int
    """Along which the weights' scales differ."""
    bias: str
    """The bias's whole numbers; empty without one."""


class Bounds:
    """Sums with shared tensors, and the bounds of their scales.

    `model`: quantised, of signed bytes with zero points of 0.
    """

    def __init__(self, model: Any, arrays: Arrays) -> None:
        self._arrays = arrays
        self._makers = {node.output[0]: node for node in model.graph.node}
        self._readers: dict[str, list[Any]] = defaultdict(list)
        for node in model.graph.node:
            for name in node.input:
                self._readers[name].append(node)
        self._layers = list(self._find_layers(model))
        self._sums = list(self._find_sums(model))

    def raise_exponents(
        self, exponents: Mapping[str, Exponents], biases: Arrays, limits: ScaleLimits
    ) -> dict[str, Exponents]:
        """Return the exponents by the scales' names, where necessary raised.

        Exponents of all scales but those of biases are as calibrated; `biases` are real numbers, by the name of their
        whole ones.
        """
        result = dict(exponents)
        for _ in range(_ROUNDS):
            # A scale that is raised may raise those behind it, so that one pass is not enough.
            previous_exponents = dict(result)
            for layer in self._layers:
                self._raise_layer(result, layer, biases.get(layer.bias), limits)
            for names in self._sums:
                # VTA brings addends to one unit by weights that are powers of two, of which int8 holds up to 2^6.
                lowest = limits.addend(*(float(result[name].max()) for name in names))
                result |= {name: np.maximum(result[name], lowest) for name in names}
            if all(np.array_equal(result[name], value) for name, value in previous_exponents.items()):
                break
        return result

    def _raise_layer(self, exponents: dict[str, Exponents], layer: Layer, bias: Any, limits: ScaleLimits) -> None:
        values, source = self._arrays[layer.weights], float(exponents[layer.source].max())
        results = [float(exponents[name].max()) for name in layer.results]
        natural = np.broadcast_to(exponents[layer.scale], self._channels(layer))
        # Each channel sums as many products as it has weights.
        terms = values.size // max(len(natural), 1) if natural.ndim else values.size
        weight_exponents = limits.weight_exponents(natural, source, max(results, default=None), bias, terms)
        # One scale for all channels must suit each of them.
        exponents[layer.scale] = weight_exponents if exponents[layer.scale].ndim else weight_exponents.max()
        # Bytes cannot be finer than the sums that they are made of.
        lowest = source + float(weight_exponents.max())
        exponents |= {name: np.maximum(exponents[name], lowest) for name in layer.results if name != layer.source}

    def _channels(self, layer: Layer) -> tuple[int, ...]:
        return (self._arrays[layer.weights].shape[layer.axis],)

    def _find_layers(self, model: Any) -> Iterator[Layer]:
        for node in model.graph.node:
            data, weights, bias = (*(self._dequantizer(name) for name in node.input[:3]), None, None, None)[:3]
            if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul") and data is not None and weights is not None:
                if data.input[0] in self._arrays or weights.input[0] not in self._arrays:
                    continue
                # Several readers may quantise the sums, each with its own scale; a shared one counts once.
                results = tuple(dict.fromkeys(quantizer.input[1] for quantizer in self._quantizers(node.output[0])))
                axis = axis_of(weights) % max(self._arrays[weights.input[0]].ndim, 1)
                scales = weights.input[1], data.input[1]
                yield Layer(weights.input[0], *scales, results, axis, bias.input[0] if bias is not None else "")

    def _find_sums(self, model: Any) -> Iterator[tuple[str, ...]]:
        """Yield the three scales of each sum: operands and result."""
        for node in model.graph.node:
            sources = [self._dequantizer(name) for name in node.input] if node.op_type in _SUMMING else [None]
            # A constant addend is a bias, whose unit follows from the products.
            if all(source is not None and source.input[0] not in self._arrays for source in sources):
                result_scales = [quantizer.input[1] for quantizer in self._quantizers(node.output[0])]
                yield tuple(
                    dict.fromkeys([*(source.input[1] for source in sources if source is not None), *result_scales])
                )

    def _dequantizer(self, name: str) -> Any:
        maker = self._makers.get(name)
        return maker if maker is not None and maker.op_type == "DequantizeLinear" else None

    def _quantizers(self, name: str) -> Iterator[Any]:
        """Yield the quantisers of a tensor, behind a clip or not."""
        for node in self._readers[name]:
            if node.op_type == "QuantizeLinear":
                yield node
            elif node.op_type in _PASSING:
                yield from self._quantizers(node.output[0])
