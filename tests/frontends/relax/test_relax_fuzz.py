"""Damaged Relax modules end in one of our own errors; TVM would end the process on many."""

from __future__ import annotations

import copy
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tvm

import pipeline
from pipeline.errors import ModelError
from tests.support.relax_modules import network, open_network

VALUES: tuple[Any, ...] = (
    0,
    1,
    -1,
    7,
    10**5,
    2**31,
    2**40,
    2**63 - 1,
    "",
    "float32",
    "int8",
    "main",
    "x",
    1.5,
    None,
    True,
    [0],
    {},
)


def mutated_json(seed: int, text: str) -> str:
    """Change nodes, so that the text remains JSON."""
    generator = random.Random(seed)
    document = json.loads(text)
    nodes = document["nodes"]
    for _ in range(generator.choice((1, 1, 1, 2, 3))):
        node = generator.choice(nodes)
        choose: Callable[[Any, list[Any]], None] = generator.choice((change_data, change_data, change_type, drop_entry))
        choose(generator, [node, nodes])
    return json.dumps(document)


def change_data(generator: Any, position: list[Any]) -> None:
    node, nodes = position
    second = generator.choice((*VALUES, *(generator.randrange(len(nodes)) for _ in range(20))))
    data = node.get("data")
    if isinstance(data, dict | list) and data:
        data[generator.choice(list(data) if isinstance(data, dict) else range(len(data)))] = second
    else:
        node["data"] = second


def change_type(generator: Any, position: list[Any]) -> None:
    node, nodes = position
    node["type"] = generator.choice(nodes)["type"]


def drop_entry(generator: Any, position: list[Any]) -> None:
    node, _ = position
    data = node.get("data")
    if isinstance(data, dict) and data:
        del data[generator.choice(list(data))]
    elif isinstance(data, list) and data:
        data.pop()
    else:
        node.pop("data", None)


def texts() -> list[str]:
    return [str(tvm.ir.save_json(each)) for each in (network(), open_network())]


def is_refused(folder: Path, seeds: range) -> int:
    """Read damaged modules and return how many were refused."""
    path, originals, count = folder / "m", texts(), 0
    for seed in seeds:
        path.write_text(mutated_json(seed, originals[seed % len(originals)]))
        start = time.perf_counter()
        try:
            pipeline.read(path, {"x": (3, 4)} if seed % 2 else None)
        except ModelError as error:
            assert str(error)  # noqa: PT017 - what matters is that no other type is raised
            count += 1
        assert time.perf_counter() - start < 20
    return count


def test_damaged_modules(tmp_path: Path) -> None:
    assert 50 < is_refused(tmp_path, range(200)) < 200


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, 6_000, 1_000))
def test_many_damaged_modules(tmp_path: Path, start: int) -> None:
    assert 100 < is_refused(tmp_path, range(1_000 + start, 2_000 + start)) < 1_000


def test_the_originals_are_whole(tmp_path: Path) -> None:
    for number, text in enumerate(texts()):
        (tmp_path / "m").write_text(text)
        pipeline.read(tmp_path / "m", {"x": (3, 4)} if number == 1 else None)


def test_a_deep_tree(tmp_path: Path) -> None:
    document = json.loads(texts()[0])
    for _ in range(100_000):
        document["nodes"].append({"type": "ffi.Array", "data": [len(document["nodes"]) - 1]})
    document["root_index"] = len(document["nodes"]) - 1
    (tmp_path / "m").write_text(json.dumps(document))
    with pytest.raises(ModelError, match="nodes nest more than 400 deep"):
        pipeline.read(tmp_path / "m")


def test_nodes_that_tvm_would_trust(tmp_path: Path) -> None:
    """A variable without a type where TVM takes it for granted that there is one."""
    document = json.loads(texts()[0])
    none_index = next(number for number, node in enumerate(document["nodes"]) if node["type"] == "None")
    for node in copy.deepcopy(document["nodes"]):
        if node["type"] in ("ir.Var", "relax.expr.DataflowVar"):
            document["nodes"][document["nodes"].index(node)]["data"]["ty"] = none_index
    (tmp_path / "m").write_text(json.dumps(document))
    with pytest.raises(ModelError, match=r"its field \'ty\' is of the class None, not ir\.Type"):
        pipeline.read(tmp_path / "m")


@pytest.mark.timeout(20)
def test_a_shape_that_is_a_variable(tmp_path: Path) -> None:
    """A kernel's result whose shape is a tensor: TVM gives a field of any number of it, so reading never ended."""
    document = json.loads(texts()[0])
    nodes = document["nodes"]
    call = next(node["data"] for node in nodes if node["type"] == "ir.Call" and nodes[node["data"]["ty_args"]]["data"])
    variables = {
        nodes[node["data"]["name"]]["data"]: number
        for number, node in enumerate(nodes)
        if node["type"] == "relax.expr.DataflowVar"
    }
    (result_type,) = nodes[call["ty_args"]]["data"]
    nodes[result_type]["data"]["shape"] = variables["shifted"]
    (tmp_path / "m").write_text(json.dumps(document))
    with pytest.raises(ModelError, match="'lv' has no fixed shape, but what shifted holds"):
        pipeline.read(tmp_path / "m")
