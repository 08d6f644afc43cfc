"""Attention as two products and a softmax, which fuse and are scheduled, with each kind of mask that PyTorch knows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.split.frontends.torch.arguments import arguments, extents


def attention(importer: Any, node: Any) -> Any:
    """Return ``scaled_dot_product_attention``."""
    given = arguments(importer, node)
    query, key, value = given["query"], given["key"], given["value"]
    emit = importer.block_builder.emit
    if given["enable_gqa"]:
        key, value = (_repeated(emit, each, extents(query)[-3]) for each in (key, value))
    depth = extents(query)[-1]
    scale = given["scale"] if given["scale"] is not None else 1 / math.sqrt(depth)
    swapped = [*range(key.ty.ndim - 2), key.ty.ndim - 1, key.ty.ndim - 2]
    dtype = str(query.ty.dtype)
    query = emit(relax.op.multiply(query, relax.const(scale, dtype)))
    scores = emit(relax.op.matmul(query, emit(relax.op.permute_dims(key, swapped))))
    mask = _causal(*extents(scores)[-2:]) if given["is_causal"] else given["attn_mask"]
    if mask is None:
        return relax.op.matmul(emit(relax.op.nn.softmax(scores, -1)), value)
    return relax.op.matmul(_masked(emit, scores, mask, dtype), value)


def _repeated(emit: Any, value: Any, heads: int) -> Any:
    own = extents(value)[-3]
    return value if own == heads else emit(relax.op.repeat(value, heads // own, value.ty.ndim - 3))


def _causal(rows: int, columns: int) -> Any:
    return relax.const(np.tril(np.ones((rows, columns), bool)), "bool")


def _masked(emit: Any, scores: Any, mask: Any, dtype: str) -> Any:
    """Return the softmax, with zeros in a row of which all is masked, as PyTorch has it, instead of NaN."""
    lowest = relax.const(float(np.finfo(dtype).min) / 2, dtype)
    zero = relax.const(0.0, dtype)
    if str(mask.ty.dtype) == "bool":
        weights = emit(relax.op.nn.softmax(emit(relax.op.where(mask, scores, lowest)), -1))
        return emit(relax.op.where(mask, weights, zero))
    # Added before the maximum: a number may be masked by infinity, and softmax must not see two of them.
    added = emit(relax.op.maximum(emit(relax.op.add(scores, mask)), lowest))
    weights = emit(relax.op.nn.softmax(added, -1))
    return emit(relax.op.where(emit(relax.op.greater(added, lowest)), weights, zero))
