"""Fused operators of ONNX Runtime's optimiser and language-model tools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.onnx.operators.convolutions import convolve
from pipeline.frontends.onnx.operators.node_call import Converter, NodeCall
from pipeline.model.passes.bindings import constant


def _simplified_norm(call: NodeCall) -> Any:
    """Return ``SimplifiedLayerNormalization``, an RMS norm."""
    _refuse_statistics(call, range(1, 2))
    rank = call.inputs[0].ty.ndim
    axes = list(range(int(call.attributes.get("axis", -1)) % rank, rank))
    return relax.op.nn.rms_norm(call.inputs[0], call.inputs[1], axes, float(call.attributes.get("epsilon", 1e-5)))


def _skip_norm(call: NodeCall) -> Any:
    """Return ``SkipLayerNormalization``: a sum (fourth result) and its norm."""
    total = _sum(call, 4)
    epsilon = float(call.attributes.get("epsilon", 1e-12))
    beta = call.input(3)
    if beta is None:
        beta = relax.op.zeros(call.inputs[2].ty.shape, call.dtype(2))
    return _with_sum(call, relax.op.nn.layer_norm(total, call.inputs[2], call.normal(beta), [-1], epsilon), total)


def _skip_simplified_norm(call: NodeCall) -> Any:
    total = _sum(call, 3)
    epsilon = float(call.attributes.get("epsilon", 1e-12))
    return _with_sum(call, relax.op.nn.rms_norm(total, call.inputs[2], [-1], epsilon), total)


def _sum(call: NodeCall, bias: int) -> Any:
    _refuse_statistics(call, range(1, 3))
    total = relax.op.add(call.inputs[0], call.inputs[1])
    return call.normal(total if call.input(bias) is None else relax.op.add(total, call.inputs[bias]))


def _with_sum(call: NodeCall, norm: Any, total: Any) -> Any:
    if not call.has_result(3):
        return norm
    norm = call.normal(norm)
    return relax.Tuple([norm, norm, norm, total])


def _refuse_statistics(call: NodeCall, positions: range) -> None:
    if any(call.has_result(position) for position in positions):
        raise ValueError("with mean and deviation as outputs")


def _product(call: NodeCall) -> Any:
    """Return ``FusedMatMul``, with a factor and with operands transposed."""
    if int(call.attributes.get("transBatchA", 0)) or int(call.attributes.get("transBatchB", 0)):
        raise ValueError("with its batch transposed")
    operands = [
        _transpose(call.inputs[position]) if int(call.attributes.get(name, 0)) else call.inputs[position]
        for position, name in enumerate(("transA", "transB"))
    ]
    return _scale(call, call.normal(relax.op.matmul(*(call.normal(operand) for operand in operands))), "alpha")


def _transpose(value: Any) -> Any:
    order = list(range(value.ty.ndim))
    return relax.op.permute_dims(value, [*order[:-2], order[-1], order[-2]])


def _convolution(call: NodeCall) -> Any:
    """Return ``FusedConv``: convolution, optional sum, and activation."""
    result = call.normal(convolve(call, *call.inputs[:3]))
    if call.input(3) is not None:
        result = call.normal(relax.op.add(result, call.inputs[3]))
    return _activate(call, result, list(call.attributes.get("activation_params") or []))


def _gemm(call: NodeCall) -> Any:
    """Return ``FusedGemm``: matrix product, sum and activation."""
    operands = [
        _transpose(value) if int(call.attributes.get(name, 0)) else value
        for name, value in zip(("transA", "transB"), call.inputs, strict=False)
    ]
    result = call.normal(relax.op.matmul(*(call.normal(operand) for operand in operands)))
    result = _scale(call, result, "alpha")
    if call.input(2) is not None:
        result = call.normal(relax.op.add(result, _scale(call, call.inputs[2], "beta")))
    return _activate(call, result, [float(call.attributes.get("activation_alpha", 0.01))])


def _scale(call: NodeCall, value: Any, name: str) -> Any:
    factor = float(call.attributes.get(name, 1.0))
    return value if factor == 1 else call.normal(relax.op.multiply(value, relax.const(factor, call.dtype())))


def _activate(call: NodeCall, result: Any, numbers: Sequence[float]) -> Any:
    match kind := call.text("activation", ""):
        case "":
            return result
        case "Relu":
            return relax.op.nn.relu(result)
        case "Sigmoid":
            return relax.op.sigmoid(result)
        case "Tanh":
            return relax.op.tanh(result)
        case "LeakyRelu":
            return relax.op.nn.leakyrelu(result, float(numbers[0]))
        case "Clip" if len(numbers) > 1:
            return relax.op.clip(result, float(numbers[0]), float(numbers[1]))
        case _:
            raise ValueError(f"with the activation {kind}")


def _product_of_few_bits(call: NodeCall) -> Any:
    """Return ``MatMulNBits`` with weights unpacked to real numbers."""
    packed, scales = call.values(1), call.values(2)
    bits, block = int(call.attributes.get("bits", 4)), int(call.attributes["block_size"])
    rows, columns = int(call.attributes["K"]), int(call.attributes["N"])
    if packed is None or scales is None or bits not in (4, 8) or call.input(4) is not None:
        raise ValueError("of weights that are computed, of other than 4 or 8 bits, or in another order")
    zero = call.values(3)
    blocks = -(-rows // block)
    values = _unpack(packed.reshape(columns, blocks, -1), bits).astype(np.float32)
    if zero is None:
        values -= 1 << (bits - 1)
    elif zero.dtype == np.uint8:
        values -= _unpack(zero.reshape(columns, -1), bits)[:, :blocks, None].astype(np.float32)
    else:
        values -= zero.reshape(columns, blocks, 1)
    weights = (values * scales.reshape(columns, blocks, 1)).reshape(columns, -1)[:, :rows].astype(call.dtype())
    product = relax.op.matmul(call.inputs[0], constant(np.ascontiguousarray(weights.T)))
    return product if call.input(5) is None else relax.op.add(product, call.inputs[5])


def _unpack(values: np.ndarray, bits: int) -> np.ndarray:
    """Return unpacked numbers; a byte's lower half comes first."""
    if bits == 8:
        return values
    return np.stack([values & 15, values >> 4], -1).reshape(*values.shape[:-1], -1)


CONVERTERS: dict[str, Converter] = {
    # Which domain it has depends on the version of the tool that wrote it.
    "SimplifiedLayerNormalization": _simplified_norm,
    "com.microsoft.SimplifiedLayerNormalization": _simplified_norm,
    "com.microsoft.FusedConv": _convolution,
    "com.microsoft.FusedGemm": _gemm,
    "com.microsoft.FusedMatMul": _product,
    "com.microsoft.MatMulNBits": _product_of_few_bits,
    "com.microsoft.SkipLayerNormalization": _skip_norm,
    "com.microsoft.SkipSimplifiedLayerNormalization": _skip_simplified_norm,
}
