"""Relax modules for the tests, as TVM's own tools make them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.script.parser import ir, tirx
from tvm.script.parser import relax as relax_script


def save(path: Path, module: Any) -> Path:
    """Write a module as JSON."""
    path.write_text(tvm.ir.save_json(module))
    return path


def parse(text: str) -> Any:
    """Return the module of a TVMScript text."""
    return tvm.script.parser.parse(text, extra_vars={"I": ir, "R": relax_script, "T": tirx})


def network() -> Any:
    """Return a module with a constant, a tuple, a kernel, and weights that are parameters."""
    builder = relax.BlockBuilder()
    x, w = (
        relax.Var(name, relax.TensorType(shape, "float32"))
        for name, shape in (("x", (1, 4, 8, 8)), ("w", (6, 4, 3, 3)))
    )
    with builder.function("main", [x, w]):
        with builder.dataflow():
            output = builder.emit(relax.op.nn.conv2d(x, w, padding=1), name_hint="conv")
            parts = builder.emit(relax.op.split(output, 2, axis=1), name_hint="parts")
            output = builder.emit(parts[0], name_hint="half")
            offset = relax.const(np.arange(8, dtype=np.float32))
            output = builder.emit(relax.op.add(output, offset), name_hint="shifted")
            output = builder.emit(relax.op.multiply(output, relax.const(2.0, "float32")), name_hint="scaled")
            output = builder.emit_te(double, output)
            result = builder.emit_output(relax.op.nn.relu(output), name_hint="result")
        builder.emit_func_output(result)
    return builder.get()


def double(tensor: Any) -> Any:
    """Return a kernel in TVM's tensor expressions."""
    return tvm.te.compute(tensor.shape, lambda *position: tvm.tirx.exp(tensor(*position)) * 2, "doubled")


def open_network() -> Any:
    """Return a module with an open extent, and a tuple that one operator makes as its result."""
    builder = relax.BlockBuilder()
    rows = tvm.tirx.Var("rows", "int64")
    x = relax.Var("x", relax.TensorType((rows, 4), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit(relax.op.reshape(relax.op.add(x, x), (rows * 2, 2)))
            result = builder.emit_output(relax.op.split(output, 2, axis=1))
        builder.emit_func_output(result)
    return builder.get()


NESTED = """
@I.ir_module
class Module:
    @R.function(private=True)
    def inner(a: R.Tensor((2, 3), dtype="float32"), b: R.Tensor((2, 3), dtype="float32")):
        c: R.Tensor((2, 3), dtype="float32") = R.add(a, b)
        return c

    @R.function
    def top(input: R.Tensor((2, 3), dtype="float32"), w: R.Tensor((2, 3), dtype="float32")):
        cls = Module
        d = R.exp(input)
        e = cls.inner(d, w)
        return (cls.inner(e, w), e)
"""
"""An entry of another name, which calls another function twice."""
