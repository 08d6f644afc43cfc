"""What is fused into a kernel computes each element once, however often it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm.script import tirx as script

import pipeline
from pipeline.executor.kernels import anchor
from pipeline.tvm import statements as tir
from tests.support import onnx_models

LINKS = 16
"""Of a chain, each of which reads the one before it twice: 65,536 reads if they were written out."""


@pytest.mark.parametrize("dtype", ["int32", "float32"])
def test_a_chain_grows_by_its_links_only(dtype: str) -> None:
    group = anchor.group_of(chain(dtype))
    assert group is not None
    additions = []

    def look(node: Any, mutator: Any) -> Any:
        additions.append(node)
        return mutator.default_mutate(node)

    statement = group.store(tvm.tirx.Var("total", dtype), [tir.variable("i")])
    tvm_ffi.structural_mutate(statement, [(tvm.tirx.Add, look)])
    assert len(additions) == LINKS


@pytest.mark.parametrize("dtype", ["int32", "float32"])
@pytest.mark.parametrize("kind", [tir.SERIAL, tir.VECTORIZED])
def test_a_chain_computes_the_same(dtype: str, kind: Any) -> None:
    group = anchor.group_of(chain(dtype))
    assert group is not None
    source, target = group.params
    body = tir.loop("i", 4, lambda i: group.store(tir.load(source, i), [i]), kind)
    program = tvm.compile(tvm.IRModule({"main": group.with_body(body).with_attr("global_symbol", "main")}), "llvm")
    values = np.array([3, -5, 0, 7], dtype)
    result = tvm.runtime.empty((4,), dtype)
    program["main"](tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(result.numpy(), values * 2**LINKS)
    assert target.dtype == dtype


@pytest.mark.parametrize("head", ["Conv", "Softmax", ""])
def test_a_model_builds_that_uses_each_elementwise_result_twice(head: str, tmp_path: Path) -> None:
    graph = pipeline.read(light_curves(tmp_path / "model.onnx", head, links=12))
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1))
    assert bundle.verification is not None
    assert bundle.verification.relative < 1e-4


def light_curves(path: Path, head: str, links: int) -> Path:
    """Save y = x + a * (x * x - x), as often as there are links; `a` is made of x by an operator, or an input."""
    attributes: dict[str, Any] = {"pads": [1] * 4} if head == "Conv" else {}
    nodes = [onnx_models.node(head, "x w" if head == "Conv" else "x", "a", **attributes)] if head else []
    value = "x"
    for link in range(links):
        nodes += [
            onnx_models.node("Mul", f"{value} {value}", f"square{link}"),
            onnx_models.node("Sub", f"square{link} {value}", f"difference{link}"),
            onnx_models.node("Mul", f"a difference{link}", f"share{link}"),
            onnx_models.node("Add", f"{value} share{link}", f"y{link}"),
        ]
        value = f"y{link}"
    inputs = dict.fromkeys(["x"] if head else ["x", "a"], (1, 3, 8, 8))
    weights = {"w": onnx_models.weights(3, 3, 3, 3) / 100} if head == "Conv" else {}
    return onnx_models.save(path, nodes, inputs, [value], weights)


def chain(dtype: str) -> Any:
    """Return a function with a placeholder and a chain of additions behind it, as TVM's fusion leaves them."""
    identity = '{"kernel": "k", "form": "{}", "tuned": false}'
    lines = [
        "@T.prim_func(private=True, s_tir=True)",
        f"def main(source: T.Buffer((4,), {dtype!r}), target: T.Buffer((4,), {dtype!r})):",
        *(f"    x{link} = T.sblock_alloc_buffer((4,), {dtype!r})" for link in range(LINKS)),
        *block("x0", f"T.sblock_attr({{'soc.kernel.placeholder': {identity!r}}})", "source"),
        *(line for link in range(1, LINKS) for line in block(f"x{link}", "", f"x{link - 1}", f"x{link - 1}")),
        *block("target", "", f"x{LINKS - 1}", f"x{LINKS - 1}"),
    ]
    return tvm.script.from_source("\n".join(lines), {"T": script})


def block(target: str, attribute: str, *sources: str) -> list[str]:
    reads = ", ".join(f"{source}[v]" for source in dict.fromkeys(sources))
    return [
        f"    for i_{target} in range(4):",
        f"        with T.sblock({target!r}):",
        f"            v = T.axis.spatial(4, i_{target})",
        f"            T.reads({reads})",
        f"            T.writes({target}[v])",
        *([f"            {attribute}"] if attribute else []),
        f"            {target}[v] = {' + '.join(f'{source}[v]' for source in sources)}",
    ]
