"""Relax modules of one operator, above all those that take indices, lengths and divisors with the frame."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from tvm import relax

import pipeline

op = relax.op
X, N = ((6, 8), "float32"), ((4, 8), "int32")
I = ((4,), "int64")  # noqa: E741 - short for indices
IMAGE, BOXES = ((1, 2, 6, 6), "float32"), ((3, 5), "float32")
OPERATORS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "take": (lambda x, i: op.take(x, i, 0), [X, I]),
    **{
        f"take {mode}": (lambda x, i, mode=mode: op.take(x, i, 1, mode=mode), [X, I])
        for mode in ("fast", "wrap", "clip", "nan")
    },
    "take of int32": (lambda x, i: op.take(x, i, 1), [X, ((2, 2), "int32")]),
    "gather_elements": (lambda x, i: op.gather_elements(x, i, 1), [X, ((6, 3), "int64")]),
    "gather_nd": (op.gather_nd, [X, ((3, 2), "int64")]),
    "index_tensor": (lambda x, i, j: op.index_tensor(x, [i, j]), [X, I, I]),
    "index_put": (lambda x, i, j, u: op.index_put(x, [i, j], u), [X, I, I, ((4,), "float32")]),
    "index_put that adds": (
        lambda x, i, j, u: op.index_put(x, [i, j], u, accumulate=True), [X, I, I, ((4,), "float32")],
    ),
    "scatter_elements": (lambda x, i, u: op.scatter_elements(x, i, u, 1), [X, ((6, 3), "int64"), ((6, 3), "float32")]),
    "scatter_nd": (op.scatter_nd, [X, ((3, 1), "int64"), ((3, 8), "float32")]),
    "scatter_nd of two": (op.scatter_nd, [X, ((3, 2), "int64"), ((3,), "float32")]),
    "one_hot": (lambda i: op.one_hot(i, _number(1.0), _number(0.0), 5, -1), [I]),
    "reverse_sequence": (lambda x, i: op.reverse_sequence(x, i, 1, 0), [X, ((6,), "int32")]),
    "bucketize": (op.bucketize, [X, ((5,), "float32")]),
    "grid_sample": (lambda x, g: op.image.grid_sample(x, g, layout="NCHW"), [IMAGE, ((1, 2, 5, 5), "float32")]),
    **{
        f"grid_sample {method} {padding}": (
            lambda x, g, m=method, p=padding: op.image.grid_sample(x, g, method=m, layout="NCHW", padding_mode=p),
            [IMAGE, ((1, 2, 5, 5), "float32")],
        )
        for method in ("nearest", "bicubic") for padding in ("zeros", "border", "reflection")
    },
    "affine_grid": (lambda t: op.image.affine_grid(t, (4, 4)), [((1, 2, 3), "float32")]),
    "roi_align": (lambda x, r: op.vision.roi_align(x, r, (2, 2), 1.0, 2), [((2, 2, 6, 6), "float32"), BOXES]),
    "roi_align by size": (lambda x, r: op.vision.roi_align(x, r, (2, 2), 1.0, 0), [((2, 2, 6, 6), "float32"), BOXES]),
    "roi_pool": (lambda x, r: op.vision.roi_pool(x, r, (2, 2), 1.0), [((2, 2, 6, 6), "float32"), BOXES]),
    "dynamic_strided_slice": (
        op.dynamic_strided_slice, [X, ((2,), "int64"), ((2,), "int64"), ((2,), "int64")],
    ),
    "topk": (lambda x: op.topk(x, 3, ret_type="both"), [X]),
    "argsort": (op.argsort, [X]),
    "argmax": (lambda x: op.argmax(x, 1), [X]),
    "unique": (op.unique, [I]),
    "nonzero": (op.nonzero, [X]),
    "multinomial": (
        op.multinomial_from_uniform, [X, ((4, 1), "float32"), ((4, 1), "int64")],
    ),
    "nms": (
        lambda b, s, m: op.vision.all_class_non_max_suppression(b, s, m, _number(0.5), _number(0.1)),
        [((1, 6, 4), "float32"), ((1, 2, 6), "float32"), ((), "int64")],
    ),
    "nll_loss": (lambda x, t: op.nn.nll_loss(x, t, reduction="none"), [X, ((6,), "int64")]),
    "attention": (
        op.nn.attention, [((1, 4, 2, 8), "float32")] * 3,
    ),
    "quantize": (lambda x, s, z: op.quantize(x, s, z, 1, "int8"), [X, ((8,), "float32"), ((8,), "int8")]),
    "dequantize": (lambda x, s, z: op.dequantize(x, s, z, 1), [((6, 8), "int8"), ((8,), "float32"), ((8,), "int8")]),
    **{
        f"{name} of {dtype}": (getattr(op, name), [((4, 8), dtype)] * 2)
        for name in ("divide", "floor_divide", "floor_mod", "mod", "power", "left_shift", "right_shift")
        for dtype in ("int8", "uint8", "int16", "int32", "int64", "float32")
        if not ("shift" in name and dtype == "float32")
    },
    **{
        f"{name}": (getattr(op, name), [X])
        for name in ("exp", "log", "sqrt", "rsqrt", "tan", "erf", "round", "sigmoid", "cumsum", "median", "sort")
    },
    **{
        f"astype {dtype}": (lambda x, dtype=dtype: op.astype(x, dtype), [X])
        for dtype in ("int8", "uint8", "int32", "int64", "bool", "float16")
    },
    "take of cast": (lambda x, f: op.take(x, op.astype(f, "int32"), 0), [X, ((4,), "float32")]),
    "take of a result": (lambda x, i: op.take(x, op.floor_divide(op.multiply(i, i), op.add(i, i)), 0), [X, I]),
    "take of argsort": (lambda x, y: op.take(x, op.argmax(y, 0), 0), [X, X]),
    "gather of argsort": (lambda x: op.gather_elements(x, op.argsort(x, 1), 1), [X]),
}  # fmt: skip


def _number(value: float) -> Any:
    return relax.const(np.float32(value))


def relax_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield names of cases, with functions that read them and return values of their inputs."""
    for name, (function, operands) in OPERATORS.items():
        yield name, functools.partial(_read, function, operands)


def _read(function: Callable[..., Any], operands: list[Any]) -> Any:
    builder = relax.BlockBuilder()
    variables = [relax.Var(f"x{number}", relax.TensorType(*each)) for number, each in enumerate(operands)]
    with builder.function("main", variables):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(function(*variables)))
        builder.emit_func_output(result)
    return pipeline.read(builder.get()), {
        f"x{number}": np.ones(shape, dtype) for number, (shape, dtype) in enumerate(operands)
    }
