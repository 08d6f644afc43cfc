"""The JSON form: damaged objects, objects that refer to themselves, and attributes that refer to others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.errors import ModelError
from pipeline.frontends.relay import json_form
from pipeline.frontends.relay.syntax import Call, If, LetBlock, RelayProgram
from pipeline.model.imported_model import Annotation
from tests.support.relay_programs import results


class JsonObjects:
    """Builds the JSON of TVM's objects, node by node."""

    def __init__(self) -> None:
        self.nodes: list[dict[str, Any]] = [{"type_key": ""}]

    def add(self, kind: str, **attributes: Any) -> int:
        self.nodes.append({"type_key": kind, "attrs": {name: str(value) for name, value in attributes.items()}})
        return len(self.nodes) - 1

    def array(self, *items: int) -> int:
        self.nodes.append({"type_key": "Array", "data": list(items)})
        return len(self.nodes) - 1

    def text(self, text: str, kind: str = "runtime.String") -> int:
        self.nodes.append({"type_key": kind, "repr_str": text})
        return len(self.nodes) - 1

    def whole(self, value: int) -> int:
        return self.add("IntImm", dtype="int32", value=value)

    def variable(self, name: str, *extents: int) -> int:
        shape = self.array(*(self.whole(extent) for extent in extents))
        ty = self.add("relay.TensorType", dtype="float32", shape=shape)
        return self.add("relay.Var", vid=self.add("relay.Id", name_hint=self.text(name)), type_annotation=ty)

    def call(self, operator: str, *operands: int, attributes: int = 0) -> int:
        return self.add("relay.Call", op=self.text(operator, "Op"), args=self.array(*operands), attrs=attributes)

    def dump(self, root: int) -> str:
        return json.dumps({"root": root, "nodes": self.nodes, "b64ndarrays": []})

    def function(self, body: int, *parameters: int) -> str:
        return self.dump(self.add("relay.Function", params=self.array(*parameters), body=body, attrs=0))


def parse(text: str) -> RelayProgram:
    return json_form.parse(text, "test.json")


X = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)


def test_a_function_that_shares_its_parts() -> None:
    objects = JsonObjects()
    x = objects.variable("x", 2, 3)
    negated = objects.call("negative", x)
    double = objects.call("add", negated, negated)
    (output,) = results(objects.function(objects.call("multiply", double, negated), x), {"x": X})
    np.testing.assert_allclose(output, 2 * X * X, rtol=1e-6)


def test_names_are_unique_as_the_printer_makes_them() -> None:
    objects = JsonObjects()
    first, second, third = objects.variable("x", 2), objects.variable("x", 2), objects.variable("0y", 2)
    body = objects.call("add", objects.call("add", first, second), third)
    main = parse(objects.function(body, first, second, third)).functions["main"]
    assert [each.name for each in main.parameters] == ["x", "x_1", "v0y"]
    assert isinstance(main.body, LetBlock)
    assert [each.name for each in main.body.bindings] == ["%0"]


def test_branches_and_bindings() -> None:
    objects = JsonObjects()
    x, flag, y = objects.variable("x", 2, 3), objects.variable("flag", 1), objects.variable("y", 2, 3)
    value = objects.call("negative", x)
    let = objects.add("relay.Let", var=y, value=value, body=objects.call("add", y, y))
    second = objects.call("exp", objects.call("abs", x))
    branch = objects.add("relay.If", cond=flag, true_branch=let, false_branch=second)
    text = objects.function(objects.call("tanh", branch), x, flag)
    main = parse(text).functions["main"]
    assert isinstance(main.body, LetBlock)
    assert isinstance(main.body.bindings[0].value, If)
    (output,) = results(text, {"x": X}, {"flag": np.ones(1, np.float32)})
    np.testing.assert_allclose(output, np.tanh(-2 * X), rtol=1e-5)


def test_attributes() -> None:
    objects = JsonObjects()
    x = objects.variable("x", 2, 3)
    numbers = objects.array(objects.whole(1), objects.whole(-1))
    attributes = objects.add(
        "relay.attrs.ReduceAttrs", axis=numbers, keepdims=1, exclude=0, dtype="float32", layout=objects.text("NCHW"),
        a_min="-0.5", channels=objects.whole(64), nothing=0, negative=-1,
    )  # fmt: skip
    call = parse(objects.function(objects.call("sum", x, attributes=attributes), x)).functions["main"].body
    assert isinstance(call, Call)
    assert call.attributes == {
        "axis": [1, -1], "keepdims": 1, "exclude": 0, "dtype": "float32", "layout": "NCHW", "a_min": -0.5,
        "channels": 64, "nothing": None, "negative": -1,
    }  # fmt: skip


def test_on_device_becomes_a_constraint(tmp_path: Path) -> None:
    objects = JsonObjects()
    x = objects.variable("x", 8, 8)
    gpu = objects.add("VirtualDevice", device_type_int=2, virtual_device_id=0, target=0, memory_scope=0)
    body_only = objects.add("relay.attrs.OnDeviceAttrs", virtual_device=gpu, constrain_result=0, constrain_body=1)
    annotated = objects.call("on_device", objects.call("nn.softmax", x), attributes=body_only)
    (tmp_path / "m.json").write_text(objects.function(objects.call("nn.softmax", annotated), x))
    graph = pipeline.read(tmp_path / "m.json")
    first = graph.operators[0].outputs[0]
    assert graph.annotations == (Annotation(first, "cuda:0"),)
    board = Board("two", (Device("cpu"), Device("gpu", "cuda", memory="gpu")), (Link(("host", "gpu"), 1e9, 1e-5),))
    assert pipeline.plan(graph, board).stages[0].device == "gpu"


def test_a_long_chain_is_read_without_deep_recursion() -> None:
    objects = JsonObjects()
    x = objects.variable("x", 2)
    body = x
    for _ in range(5_000):
        body = objects.call("negative", body)
    main = parse(objects.function(body, x)).functions["main"]
    assert isinstance(main.body, LetBlock)
    assert len(main.body.bindings) == 4_999


def test_a_long_chain_of_let() -> None:
    objects = JsonObjects()
    x = objects.variable("x", 2)
    variables = [objects.variable("y", 2) for _ in range(3_000)]
    body = variables[-1]
    for operand, variable in reversed(list(zip([x, *variables], variables, strict=False))):
        body = objects.add("relay.Let", var=variable, value=objects.call("negative", operand), body=body)
    main = parse(objects.function(body, x)).functions["main"]
    assert isinstance(main.body, LetBlock)
    assert main.body.bindings[-1].name == "y_2999"


@pytest.mark.parametrize("kind", ["call", "let", "branch", "list", "function"])
def test_what_is_part_of_itself_is_refused(kind: str) -> None:
    objects = JsonObjects()
    x = objects.variable("x", 2)
    position = len(objects.nodes)
    objects.nodes.append({})
    node = {
        "call": lambda: objects.call("add", x, position),
        "let": lambda: objects.add("relay.Let", var=objects.variable("y"), value=x, body=position),
        "branch": lambda: objects.add("relay.If", cond=x, true_branch=position, false_branch=x),
        "list": lambda: objects.call("sum", x, attributes=objects.add("relay.attrs.ReduceAttrs", axis=position)),
        "function": lambda: objects.add("relay.Function", params=objects.array(), body=position),
    }[kind]()
    objects.nodes[position] = {"type_key": "Array", "data": [position]} if kind == "list" else objects.nodes[node]
    with pytest.raises(ModelError, match=r"part of itself|deep"):
        parse(objects.function(node if kind == "list" else position, x))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        ("[]", "is not JSON of TVM"),
        ('{"nodes": 3}', "is not JSON of TVM"),
        ('{"nodes": [], "root": 0}', "'root' refers to node 0, but there are 0 nodes"),
        ('{"nodes": [{"type_key": ""}], "root": true}', "'root' refers to node True"),
        ('{"nodes": [{"type_key": ""}], "root": 0}', "holds nothing, not a Relay module or function"),
        ('{"nodes": [{"type_key": 1}], "root": 0}', "node 0: expected an object with a 'type_key'"),
        ('{"nodes": [{"type_key": "", "attrs": {"a": 1}}], "root": 0}', "expected strings in 'attrs'"),
        ('{"nodes": [{"type_key": "", "keys": 1}], "root": 0}', "expected a list of strings in 'keys'"),
        ('{"nodes": [{"type_key": "", "data": ["a"]}], "root": 0}', "expected a list of numbers in 'data'"),
        ('{"nodes": [{"type_key": "", "repr_b64": "a"}], "root": 0}', "'repr_b64' is not valid base64"),
        ('{"nodes": [{"type_key": ""}], "root": 0, "b64ndarrays": 1}', "expected a list in 'b64ndarrays'"),
        ('{"nodes": [{"type_key": "IRModule"}], "root": 0}', "expected the number of a node in 'functions'"),
        ('{"nodes": [{"type_key": "relay.Function", "attrs": {"params": "7"}}], "root": 0}', "refers to node 7"),
        ('{"nodes": [{"type_key": "relay.Function", "attrs": {"params": "0"}}], "root": 0}', "expected Array"),
    ],
)
def test_damaged_json(text: str, message: str) -> None:
    with pytest.raises(ModelError) as failure:
        parse(text)
    assert message in str(failure.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("!", "its array is damaged"),
        ("AAAA", "its array is damaged"),
        (5, "its array is damaged"),
        # 2**60 elements in 8 bytes
        (
            "P6G0lvBAXt0AAAAAAAAAAAEAAAAAAAAAAQAAAAIgAQAAAAAAAAAAEAgAAAAAAAAAAAAAAAAAAAA=",
            "do not make float32 of the shape",
        ),
    ],
)
def test_damaged_arrays(data: object, message: str) -> None:
    objects = JsonObjects()
    text = json.loads(objects.function(objects.add("relay.Constant", data=0)))
    text["b64ndarrays"] = [data]
    with pytest.raises(ModelError, match=message):
        parse(json.dumps(text))
