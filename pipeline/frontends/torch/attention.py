"""Attention as two products and a softmax, under any PyTorch mask.

Products and softmax fuse and are scheduled.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import relax

from pipeline.frontends.torch.torch_call import TorchCall, extents


def attention(call: TorchCall) -> Any:
    """Return ``scaled_dot_product_attention``."""
    operands = call.operands
    query, key, value = operands["query"], operands["key"], operands["value"]
    emit = call.emit
    # Grouped queries: several heads of the query share one of key and value, which is repeated for them.
    if operands["enable_gqa"]:
        key, value = (_repeat_heads(emit, heads, extents(query)[-3]) for heads in (key, value))
    depth = extents(query)[-1]
    scale = operands["scale"] if operands["scale"] is not None else 1 / math.sqrt(depth)
    order = [*range(key.ty.ndim - 2), key.ty.ndim - 1, key.ty.ndim - 2]
    dtype = str(query.ty.dtype)
    # The query is scaled, not the scores, of which there are more in long sequences.
    query = emit(relax.op.multiply(query, relax.const(scale, dtype)))
    scores = emit(relax.op.matmul(query, emit(relax.op.permute_dims(key, order))))
    # Exported as a flag; its matrix is a constant, as the extents are.
    mask = _causal(*extents(scores)[-2:]) if operands["is_causal"] else operands["attn_mask"]
    if mask is None:
        return relax.op.matmul(emit(relax.op.nn.softmax(scores, -1)), value)
    return relax.op.matmul(_masked_softmax(emit, scores, mask, dtype), value)


def _repeat_heads(emit: Any, value: Any, heads: int) -> Any:
    current_heads = extents(value)[-3]
    return value if current_heads == heads else emit(relax.op.repeat(value, heads // current_heads, value.ty.ndim - 3))


def _causal(rows: int, columns: int) -> Any:
    return relax.const(np.tril(np.ones((rows, columns), bool)), "bool")


def _masked_softmax(emit: Any, scores: Any, mask: Any, dtype: str) -> Any:
    """Return the softmax with zeros, not NaN, in masked rows."""
    # Not infinity, of which softmax subtracts two; half of the lowest number, so that a sum with it does not overflow.
    lowest = relax.const(float(np.finfo(dtype).min) / 2, dtype)
    zero = relax.const(0.0, dtype)
    if str(mask.ty.dtype) == "bool":
        weights = emit(relax.op.nn.softmax(emit(relax.op.where(mask, scores, lowest)), -1))
        return emit(relax.op.where(mask, weights, zero))
    # Added before the maximum: a number may be masked by infinity, and softmax must not see two of them.
    masked_scores = emit(relax.op.maximum(emit(relax.op.add(scores, mask)), lowest))
    weights = emit(relax.op.nn.softmax(masked_scores, -1))
    return emit(relax.op.where(emit(relax.op.greater(masked_scores, lowest)), weights, zero))
