"""Operators wrong or missing in TVM's importer: replaced or refused."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from tvm import relax

from pipeline.errors import ModelError
from pipeline.frontends.operators.pooling import adaptive_pool
from pipeline.frontends.torch import arithmetic, attention, indexing, resizing
from pipeline.frontends.torch.decompose import RECURRENT_LAYERS
from pipeline.frontends.torch.torch_call import Converter, TorchCall, by_axis, extents

_RANDOM = "random numbers"
_TRAINING = "only in training: call module.eval() before torch.export.export"

NEVER = (_RANDOM, _TRAINING)
"""Reasons against PyTorch itself: stages are compared, and an answer has to be the same twice."""

_REFUSED: dict[str, str] = {
    **dict.fromkeys(("native_dropout.default", "_native_batch_norm_legit_functional.default"), _TRAINING),
    "_upsample_bilinear2d_aa.default": "resizing with antialiasing",
    "masked_select.default": "its shape depends on values",
    "cond": "control flow",
    "to_sparse.default": "sparse tensors",
    # Left whole only where they are so long that their steps would be thousands of operators.
    **dict.fromkeys(RECURRENT_LAYERS, "a recurrent layer of many steps"),
}
"""Operators that TVM would import as something else or not know, with reasons."""


def why_refused(target: Any) -> str:
    """Return the reason for never importing an operator, or ""."""
    if (cause := _REFUSED.get(target.__name__)) is not None:
        return cause
    if torch.Tag.nondeterministic_seeded not in getattr(target, "tags", ()):
        return ""
    # Attention and recurrent layers are random only where they drop values, in training.
    argument_names = {argument.name for argument in target._schema.arguments}  # noqa: SLF001 - there is no public one
    return "" if argument_names & {"train", "dropout_p"} else _RANDOM


_ALONG_AXES = (
    "argmax argmin any all sum mean amax amin max min prod std var median cumsum cumprod sort topk argsort _softmax "
    "_log_softmax softmax log_softmax flip roll gather scatter index_select index index_put select take "
    "linalg_vector_norm"
)
_WITH_AXES = frozenset(_ALONG_AXES.split())


def check_operands(node: Any) -> None:
    """Raise `ValueError` for tensors unfit for TVM: empty, some scalar."""
    packet = node.target.__name__.partition(".")[0]
    for operand in (*node.all_input_nodes, node):
        value = operand.meta.get("val")
        if not isinstance(value, torch.Tensor):
            continue
        if 0 in value.shape:
            raise ValueError("a tensor has no elements")
        if packet in _WITH_AXES and operand is not node and not value.ndim:
            raise ValueError("a tensor has no axes")


def converters(importer: Any) -> dict[str, Callable[[Any], Any]]:
    """Return our converters by the names of operators, of an importer's nodes."""
    return {name: functools.partial(_convert, convert, importer) for name, convert in _CONVERTERS.items()}


def _convert(convert: Converter, importer: Any, node: Any) -> Any:
    return convert(TorchCall(importer, node))


def _elu(call: TorchCall) -> Any:
    operands = call.operands
    data, emit = operands["self"], call.emit
    # SELU is exported as elu with both scales, of which TVM reads neither.
    input_scale, scale = operands.get("input_scale", 1), operands.get("scale", 1)
    dtype = str(data.ty.dtype)
    if call.node.target.__name__ == "celu.default":
        input_scale = 1 / operands["alpha"]
    below = emit(relax.op.minimum(data, relax.const(0, dtype)))
    exponentials = emit(relax.op.exp(emit(relax.op.multiply(below, relax.const(input_scale, dtype)))))
    low = emit(
        relax.op.multiply(
            emit(relax.op.subtract(exponentials, relax.const(1, dtype))), relax.const(operands["alpha"], dtype)
        )
    )
    result = emit(relax.op.add(emit(relax.op.nn.relu(data)), low))
    return relax.op.multiply(result, relax.const(scale, dtype)) if scale != 1 else result


def _group_norm(call: TorchCall) -> Any:
    operands = call.operands
    data = operands["input"]
    # TVM looks up an absent weight as if it were a node.
    default_scale = relax.const(np.ones(int(operands["C"]), str(data.ty.dtype)))
    scale = operands["weight"] if operands["weight"] is not None else default_scale
    shift = (
        operands["bias"]
        if operands["bias"] is not None
        else relax.const(np.zeros(int(operands["C"]), str(data.ty.dtype)))
    )
    axes = list(range(2, data.ty.ndim))
    return relax.op.nn.group_norm(data, scale, shift, int(operands["group"]), 1, axes, operands["eps"])


def _avg_pool2d(call: TorchCall) -> Any:
    if call.operands["divisor_override"]:
        raise ModelError(f"{call} divides by a number of its own, which is not supported")
    return call.convert_by_tvm()


def _refuse_places(call: TorchCall) -> None:
    # TVM returns zeros for the places; they may be there as long as nobody reads them.
    if any(user.args[1] == 1 and user.users for user in call.node.users):
        raise ModelError(f"{call} returns the places of the largest values, which is not supported")


def _max_pool(call: TorchCall) -> Any:
    _refuse_places(call)
    return call.convert_by_tvm()


def _adaptive_pool(kind: str, axes: int, call: TorchCall) -> Any:
    sizes = by_axis(call.operands["output_size"], axes)
    return adaptive_pool(call.emit, call.operands["self"], sizes, kind)


def _adaptive_max_pool(axes: int, call: TorchCall) -> Any:
    _refuse_places(call)
    values = call.emit(_adaptive_pool("max", axes, call))
    # The second field stands for the places, which nobody reads.
    return call.emit(relax.Tuple([values, values]))


def _exp2(call: TorchCall) -> Any:
    data = call.operands["self"]
    return relax.op.exp(call.emit(relax.op.multiply(data, relax.const(math.log(2), data.ty.dtype))))


def _erfc(call: TorchCall) -> Any:
    data = call.operands["self"]
    return relax.op.subtract(relax.const(1.0, data.ty.dtype), call.emit(relax.op.erf(data)))


def _skip_assertion(_: TorchCall) -> Any:
    return None


def _extreme(operator: Callable[..., Any], call: TorchCall) -> Any:
    # An empty list stands for all axes.
    return operator(call.operands["self"], list(call.operands["dim"]) or None, call.operands["keepdim"])


def _smallest(call: TorchCall) -> Any:
    data, axis, keep = call.operands["self"], call.operands["dim"], call.operands["keepdim"]
    positions = call.emit(relax.op.argmin(data, axis, keep))
    return call.emit(relax.Tuple([call.emit(relax.op.min(data, axis, keep)), positions]))


def _product(call: TorchCall) -> Any:
    return relax.op.prod(call.operands["self"], call.operands["dim"], call.operands["keepdim"])


def _reduce_any(call: TorchCall) -> Any:
    # By way of small numbers: Relax does not reduce truth values, and TVM returned numbers for numbers.
    truth = call.emit(relax.op.astype(call.operands["self"], "bool"))
    return relax.op.astype(call.emit(relax.op.max(call.emit(relax.op.astype(truth, "int8")))), "bool")


def _select(call: TorchCall) -> Any:
    """Return one index of an axis, negative ones resolved. TVM would read in front of the tensor."""
    operands = call.operands
    data, axis = operands["self"], operands["dim"] % operands["self"].ty.ndim
    position = int(operands["index"]) % extents(data)[axis]
    part = call.emit(relax.op.strided_slice(data, [axis], [position], [position + 1]))
    return relax.op.squeeze(part, [axis])


def _linear(call: TorchCall) -> Any:
    operands = call.operands
    transposed_weight = call.emit(relax.op.permute_dims(operands["weight"]))
    product = call.emit(relax.op.matmul(operands["input"], transposed_weight))
    return product if operands["bias"] is None else relax.op.add(product, operands["bias"])


def _look_up_rows(call: TorchCall) -> Any:
    return relax.op.take(call.operands["weight"], call.operands["indices"], axis=0)


_CONVERTERS: dict[str, Converter] = {
    **arithmetic.CONVERTERS,
    "_assert_async.default": _skip_assertion,
    "_assert_async.msg": _skip_assertion,
    "_adaptive_avg_pool2d.default": functools.partial(_adaptive_pool, "avg", 2),
    "_adaptive_avg_pool3d.default": functools.partial(_adaptive_pool, "avg", 3),
    "adaptive_max_pool2d.default": functools.partial(_adaptive_max_pool, 2),
    "adaptive_max_pool3d.default": functools.partial(_adaptive_max_pool, 3),
    "amax.default": functools.partial(_extreme, relax.op.max),
    "amin.default": functools.partial(_extreme, relax.op.min),
    "any.default": _reduce_any,
    "avg_pool2d.default": _avg_pool2d,
    "celu.default": _elu,
    "elu.default": _elu,
    "embedding.default": _look_up_rows,
    "erfc.default": _erfc,
    "exp2.default": _exp2,
    "index.Tensor": indexing.index,
    "linear.default": _linear,
    "scatter.src": indexing.scatter,
    "scatter.value": indexing.scatter,
    "take.default": indexing.take,
    "max_pool2d_with_indices.default": _max_pool,
    "max_pool3d_with_indices.default": _max_pool,
    "min.dim": _smallest,
    "native_group_norm.default": _group_norm,
    "prod.dim_int": _product,
    "scaled_dot_product_attention.default": attention.attention,
    "select.int": _select,
    "upsample_bicubic2d.vec": resizing.bicubic,
    "upsample_bilinear2d.vec": resizing.bilinear,
    "upsample_nearest2d.vec": resizing.nearest,
}
