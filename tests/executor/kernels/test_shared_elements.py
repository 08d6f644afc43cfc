"""What is fused into a kernel computes each element once, however often it is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm.script import tirx as script

from pipeline.executor.kernels import anchor
from pipeline.executor.kernels.tir import statements as tir

LINKS = 16
"""Of a chain, each of which reads the one before it twice: 65,536 reads if they were written out."""


def test_a_chain_of_integers_grows_by_its_links_only() -> None:
    group = anchor.group_of(chain("int32"))
    assert group is not None
    additions = []

    def look(node: Any, mutator: Any) -> Any:
        additions.append(node)
        return mutator.default_mutate(node)

    value = group.value(tvm.tirx.Var("total", "int32"), [tir.variable("i")])
    tvm_ffi.structural_mutate(value, [(tvm.tirx.Add, look)])
    assert len(additions) == LINKS


def test_a_chain_of_integers_computes_the_same() -> None:
    group = anchor.group_of(chain("int32"))
    assert group is not None
    source, target = group.params
    body = tir.loop("i", 4, lambda i: tir.store(target, group.value(tir.load(source, i), [i]), i))
    program = tvm.compile(tvm.IRModule({"main": group.with_body(body).with_attr("global_symbol", "main")}), "llvm")
    values = np.array([3, -5, 0, 7], np.int32)
    result = tvm.runtime.empty((4,), "int32")
    program["main"](tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(result.numpy(), values * 2**LINKS)


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
