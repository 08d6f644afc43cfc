"""Indices that PyTorch refuses are errors of their frame, and all others give what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import pipeline  # noqa: E402
from pipeline.errors import StageError  # noqa: E402

X = torch.arange(40.0).reshape(5, 8)
I = torch.zeros(3, 4, dtype=torch.int64)  # noqa: E741 - PyTorch's letter
J = torch.zeros(4, dtype=torch.int64)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "embedding": (lambda x, i: torch.nn.functional.embedding(i, x), (X, I)),
    "gather": (lambda x, i: x.gather(1, i), (X, I)),
    "index": (lambda x, i, j: x[i, j], (X, I, J)),
    "index apart": (lambda x, i, j: x[i, :, j], (torch.arange(60.0).reshape(3, 4, 5), I, J)),
    "index_put": (lambda x, i, j, u: x.index_put((i, j), u), (X, J, J, torch.ones(4))),
    "index_select": (lambda x, i: x.index_select(1, i), (X, J)),
    "scatter": (lambda x, i, u: x.scatter(1, i, u), (X, I, torch.full((4, 6), 7.0))),
    "scatter of a number": (lambda x, i: x.scatter(0, i, 3.5), (X, I)),
    "take": (torch.take, (X, I)),
}


class Function(torch.nn.Module):  # type: ignore[name-defined,misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *operands: Any) -> Any:
        return self._function(*operands)


@pytest.mark.parametrize("name", CASES)
def test_indices(name: str) -> None:
    function, operands = CASES[name]
    graph = pipeline.read(torch.export.export(Function(function).eval(), operands))
    assert not graph.islands
    bundle = pipeline.build(graph, pipeline.plan(graph, stages=1), check=False, verify=False)
    with pipeline.load(bundle) as running:
        # Numbers beyond 32 bits were cut off to such an index that is inside.
        for index in (0, 2, 4, 5, 8, 40, -1, -3, -6, -41, 2**32 + 1):
            values = [torch.full_like(each, index) if each.dtype == torch.int64 else each for each in operands]
            future = running.submit({spec.name: each.numpy() for spec, each in zip(graph.inputs, values, strict=True)})
            try:
                expected = function(*values)
            except (IndexError, RuntimeError):
                with pytest.raises(StageError, match="an index is outside"):
                    future.result(60)
            else:
                np.testing.assert_array_equal(future.result(60), expected.numpy())
