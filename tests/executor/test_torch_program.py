"""Calls of PyTorch's operators as plain data: what is no such call is refused before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from pipeline.errors import BundleError  # noqa: E402
from pipeline.executor.torch_program import parse  # noqa: E402


def program(*calls: Any, outputs: list[int] | None = None) -> bytes:
    return json.dumps({"inputs": [0], "calls": calls, "outputs": outputs or [len(calls)]}).encode()


def test_calls_in_order() -> None:
    content = program(
        ["aten.add.Tensor", [{"value": 0}, {"value": 0}], {"alpha": 2}, 1],
        ["aten._to_copy.default", [{"value": 1}], {"dtype": {"dtype": "float64"}}, 2],
        ["aten.split.Tensor", [{"value": 2}, 1], {}, 3],
        ["_operator.getitem", [{"value": 3}, 1], {}, 4],
    )
    (result,) = parse(content).run([torch.tensor([1.0, 2.0])])
    assert torch.equal(result, torch.tensor([6.0], dtype=torch.float64))


def test_a_loop() -> None:
    condition = json.loads(program(["aten.lt.Scalar", [{"value": 0}, 50], {}, 1]))
    body = json.loads(program(["aten.mul.Scalar", [{"value": 0}, 3], {}, 1]))
    call = ["higher_order.while_loop", [{"program": condition}, {"program": body}, [{"value": 0}], []], {}, 1]
    (result,) = parse(program(call, ["_operator.getitem", [{"value": 1}, 0], {}, 2])).run([torch.tensor(2.0)])
    assert result == 54


@pytest.mark.parametrize(
    "name",
    [
        "aten.from_file.default", "aten.add_.Tensor", "aten.__class__.default", "aten.add.__init__", "os.system.x",
        "aten.add", "profiler._record_function_enter.default", "_operator.methodcaller", "higher_order.call_torchbind",
        "math.__loader__", "torch.load",
    ],
)  # fmt: skip
def test_other_operators_are_refused(name: str) -> None:
    with pytest.raises(BundleError, match="a part of a PyTorch model is damaged"):
        parse(program([name, [{"value": 0}], {}, 1]))


@pytest.mark.parametrize(
    "content",
    [
        b"", b"[]", b"\xff", b"{}", b'{"inputs": [0], "calls": [[]], "outputs": [0]}',
        program(["aten.add.Tensor", [{"dtype": "load"}], {}, 1]), program(["aten.add.Tensor", [{"other": 1}], {}, 1]),
        program(["aten.add.Tensor", [{"dtype": "__doc__"}], {}, 1]), b"[" * 100_000,
    ],
)  # fmt: skip
def test_damaged_data(content: bytes) -> None:
    with pytest.raises(BundleError, match="a part of a PyTorch model"):
        parse(content)
