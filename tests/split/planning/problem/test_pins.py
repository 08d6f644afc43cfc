"""Pins: what a user, or an annotation in a Relay program, wants on a device runs there, whatever else is asked for."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pipeline
from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.plan import Plan
from pipeline.errors import PlanError
from pipeline.model.imported_model import Annotation
from pipeline.split.graph import Graph
from pipeline.split.planning.advice.explanation import explain
from pipeline.workflow.plan import PlannerOptions, make_planner
from tests.support.onnx_models import node, save

BOARD = Board(
    "two",
    (Device("cpu", cores=(0, 1)), Device("gpu", "cuda", memory="gpu")),
    (Link(("host", "gpu"), 1e9, 1e-5),),
)
TWO_CPUS = Board(
    "pair",
    (Device("near", cores=(0,)), Device("far", index=1, cores=(1,), memory="far")),
    (Link(("host", "far"), 1e9, 1e-5),),
)


def devices_of(plan: Plan, graph: Graph) -> dict[str, str]:
    """Return the device of each operator."""
    names = [operator.name for operator in graph.operators]
    return {
        name: unit.device
        for unit in plan.units
        for name in names[names.index(unit.operators[0]) : names.index(unit.operators[1]) + 1]
    }


WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "no replicas": {"replicas": False},
    "three stages": {"stages": 3},
    "devices": {"devices": ["gpu", "cpu", "gpu", "cpu"]},
    "cuts": {"cuts": ["n1", "n3"]},
    "devices and cuts": {"cuts": ["n1", "n3"], "devices": ["cpu", "gpu", "cpu"]},
    "latency": {"objective": "latency"},
}


@pytest.mark.parametrize("way", WAYS)
def test_pins_hold_however_a_plan_is_asked_for(chain: Graph, way: str) -> None:
    pin = {"n2": "gpu", "n4": "cpu", "t1": "cpu"} if way != "devices" else {"n2": "gpu", "n5": "cpu"}
    devices = devices_of(pipeline.plan(chain, BOARD, pin=pin, **WAYS[way]), chain)
    assert {name: devices["n0" if name == "t1" else name] for name in pin} == pin


def test_each_pair_of_pins_is_kept(chain: Graph) -> None:
    for first, second in product(("cpu", "gpu"), repeat=2):
        pin = {"n0": first, "n5": second}
        devices = devices_of(pipeline.plan(chain, BOARD, pin=pin), chain)
        assert (devices["n0"], devices["n5"]) == (first, second)


@pytest.mark.parametrize(
    ("pin", "options", "message"),
    [
        ({"n9": "cpu"}, {}, r"there is no 'n9' to pin; did you mean 'n[0-9]'"),
        ({"zzz": "cpu"}, {}, "there is no 'zzz' to pin; soc-pipeline inspect lists the operators"),
        ({"t0": "cpu"}, {}, "'t0' is a model input, which no device computes"),
        ({"n0": "gpu1"}, {}, "'n0' is pinned to 'gpu1', but board 'two' has no such device; it has cpu, gpu; did you"),
        (
            {"n0": "cpu", "t1": "gpu"},
            {},
            "'n0' is pinned to 'cpu' and 't1' is pinned to 'gpu', but the compiler fuses both into one kernel",
        ),
        (
            {"n0": "cpu", "n5": "gpu"},
            {"stages": 1},
            "in 1 stages: .*, as 'n0' is pinned to 'cpu' and 'n5' is pinned to 'gpu'",
        ),
        (
            {"n0": "cpu", "n1": "gpu"},
            {"cuts": ["n3"]},
            "stage 0 cannot run on one device: 'n0' is pinned to 'cpu' and 'n1' is pinned to 'gpu'; cut between",
        ),
        (
            {"n0": "gpu"},
            {"cuts": ["n3"], "devices": ["cpu", "gpu"]},
            "'n0' is pinned to 'gpu', but its stage is on 'cpu'",
        ),
        ({"n0": "gpu"}, {"devices": ["cpu", "cpu"]}, "'n0' is pinned to 'gpu', but the stages are on cpu, cpu"),
        (
            {"n0": "gpu"},
            {"devices": ["cpu", "gpu"]},
            "cannot run on cpu, gpu in this order, as 'n0' is pinned to 'gpu'; leave the choice to the planner",
        ),
    ],
    ids=str,
)
def test_impossible_pins_are_refused(chain: Graph, pin: dict[str, str], options: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        pipeline.plan(chain, BOARD, pin=pin, **options)


def test_what_a_device_cannot_run_is_not_pinned_to_it(tmp_path: Path) -> None:
    graph = pipeline.read(save(tmp_path / "m.onnx", [node("Softmax", "x", "y", "soft")], {"x": (4, 4)}, ["y"]))
    board = Board("narrow", (BOARD.devices[0], Device("npu", "simulated", families=("convolution",))))
    with pytest.raises(PlanError, match=r"'soft' is pinned to 'npu', but 'npu' cannot run 'soft' \(softmax\)"):
        pipeline.plan(graph, board, pin={"soft": "npu"})


def test_a_module_is_pinned_with_all_that_is_in_it(tmp_path: Path) -> None:
    nodes = [node("Softmax", a, b, name) for a, b, name in (("x", "a", "in/1"), ("a", "b", "in/2"), ("b", "y", "out"))]
    graph = pipeline.read(save(tmp_path / "m.onnx", nodes, {"x": (4, 4)}, ["y"]))
    devices = devices_of(pipeline.plan(graph, BOARD, pin={"in": "gpu", "out": "cpu"}), graph)
    assert devices == {"in/1": "gpu", "in/2": "gpu", "out": "cpu"}


def test_the_explanation_names_the_pins(chain: Graph) -> None:
    planner = make_planner(chain, BOARD, PlannerOptions(pin={"n0": "gpu", "n5": "cpu"}))
    explanation = explain(planner, planner.plan())
    causes = [stage.cause for stage in explanation.stages]
    assert [cause for cause in causes if "is pinned" in cause] == ["'n0' is pinned to 'gpu'", "'n5' is pinned to 'cpu'"]
    assert "no device may run all of it, as it is pinned" in explanation.reason


def program(tmp_path: Path, *lines: str, result: str) -> Graph:
    path = tmp_path / "m.relay"
    body = "\n".join(lines)
    path.write_text(f'#[version = "0.0.5"]\ndef @main(%x: Tensor[(8, 8), float32]) {{\n{body}\n{result}\n}}\n')
    return pipeline.read(path)


def device(kind: int, index: int | None = None, **options: object) -> str:
    number = "" if index is None else f", virtual_device_id={index}"
    attributes = "".join(f", {name}={value}" for name, value in options.items())
    return f"virtual_device=VirtualDevice(device_type={kind}{number}){attributes}"


def test_an_annotated_body_runs_where_it_says(tmp_path: Path) -> None:
    graph = program(
        tmp_path,
        "%0 = nn.softmax(%x);",
        f"%1 = on_device(%0, {device(2, 0)});",
        "%2 = nn.softmax(%1);",
        f"%3 = on_device(%2, {device(1)});",
        result="nn.softmax(%3)",
    )
    assert graph.annotations == (Annotation("%0", "cuda:0"), Annotation("%2", "cpu"))
    devices = devices_of(pipeline.plan(graph, BOARD), graph)
    assert (devices["%0"], devices["%2"]) == ("gpu", "cpu")


def test_what_reads_a_constrained_result_runs_there(tmp_path: Path) -> None:
    """`constrain_result` without `constrain_body` leaves what makes the tensor free."""
    only_result = device(2, constrain_result=True, constrain_body=False)
    graph = program(tmp_path, "%0 = nn.softmax(%x);", f"%1 = on_device(%0, {only_result});", result="nn.softmax(%1)")
    assert graph.annotations == (Annotation("output", "cuda"),)
    assert devices_of(pipeline.plan(graph, BOARD), graph)["output"] == "gpu"


def test_both_ends_of_a_copy_are_pinned(tmp_path: Path) -> None:
    source, target = (f"virtual_device=VirtualDevice(device_type={kind})" for kind in (1, 2))
    copy = f"device_copy(%0, src_{source}, dst_{target})"
    graph = program(tmp_path, "%0 = nn.softmax(%x);", f"%1 = {copy};", result="nn.softmax(%1)")
    assert devices_of(pipeline.plan(graph, BOARD), graph) == {"%0": "cpu", "output": "gpu"}


def test_old_annotations_say_the_kind_of_device_as_a_number(tmp_path: Path) -> None:
    annotated = "%1 = on_device(%0, device_type=2, is_fixed=True);"
    graph = program(tmp_path, "%0 = nn.softmax(%x);", annotated, result="nn.softmax(%1)")
    assert graph.annotations == (Annotation("%0", "cuda"), Annotation("output", "cuda"))


def test_an_annotation_inside_of_an_expression_and_in_metadata_counts(tmp_path: Path) -> None:
    path = tmp_path / "m.relay"
    path.write_text("""#[version = "0.0.5"]
def @main(%x: Tensor[(8, 8), float32]) {
  nn.softmax(on_device(nn.softmax(%x), virtual_device=meta[VirtualDevice][0], constrain_result=False))
}

#[metadata]
{"root": 1, "nodes": [
  {"type_key": ""},
  {"type_key": "Map", "keys": ["VirtualDevice"], "data": [2]},
  {"type_key": "Array", "data": [3]},
  {"type_key": "VirtualDevice", "attrs": {
    "device_type_int": "2", "memory_scope": "0", "target": "0", "virtual_device_id": "0"}}
]}
""")
    graph = pipeline.read(path)
    (note,) = graph.annotations
    assert note.device == "cuda:0"
    assert next(iter(devices_of(pipeline.plan(graph, BOARD), graph).values())) == "gpu"


def test_the_number_of_a_device_chooses_among_several(tmp_path: Path) -> None:
    lines = ["%0 = nn.softmax(%x);", f"%1 = on_device(%0, {device(1, 1)});"]
    graph = program(tmp_path, *lines, result="nn.softmax(%1)")
    assert devices_of(pipeline.plan(graph, TWO_CPUS), graph)["%0"] == "far"


def test_a_device_that_the_board_lacks_can_be_replaced(tmp_path: Path) -> None:
    lines = ["%0 = nn.softmax(%x);", f"%1 = on_device(%0, {device(2, 0)});"]
    graph = program(tmp_path, *lines, result="nn.softmax(%1)")
    message = r"'%0' is annotated to run on 'cuda:0', which board 'host' does not have; .* \(--pin cuda:0=cpu\)"
    with pytest.raises(PlanError, match=message):
        pipeline.plan(graph)
    for pin in ({"cuda:0": "cpu"}, {"%0": "cpu"}):
        assert devices_of(pipeline.plan(graph, pin=pin), graph)["%0"] == "cpu"


def test_a_pin_goes_before_an_annotation(tmp_path: Path) -> None:
    lines = ["%0 = nn.softmax(%x);", f"%1 = on_device(%0, {device(2, 0)});"]
    graph = program(tmp_path, *lines, result="nn.softmax(%1)")
    assert devices_of(pipeline.plan(graph, BOARD, pin={"%0": "cpu"}, stages=2), graph)["%0"] == "cpu"


def test_annotations_change_no_result(tmp_path: Path) -> None:
    fixed = device(1, constrain_result=True)
    graph = program(tmp_path, "%0 = exp(%x);", f"%1 = on_device(%0, {fixed});", result="(sqrt(%1), %1)")
    x = np.linspace(-1, 1, 64, dtype=np.float32).reshape(8, 8)
    with pipeline.load(pipeline.build(graph, pipeline.plan(graph))) as running:
        root, exponentials = running.submit(x).result().values()
    np.testing.assert_allclose(exponentials, np.exp(x), rtol=1e-5)
    np.testing.assert_allclose(root, np.exp(x / 2), rtol=1e-5)


def test_annotations_hold_in_a_chain_of_models(tmp_path: Path) -> None:
    text = '#[version = "0.0.5"]\ndef @main(%x: Tensor[(8, 8), float32]) {{ %0 = nn.softmax(%x); {0} nn.softmax({1}) }}'
    for name, lines in (
        ("first", (f"%1 = on_device(%0, {device(2, 0)});", "%1")),
        ("second", (f"%1 = on_device(%0, {device(1)});", "%1")),
    ):
        (tmp_path / f"{name}.relay").write_text(text.format(*lines))
    models = {name: pipeline.read(tmp_path / f"{name}.relay") for name in ("first", "second")}
    graph = pipeline.chain(models, connect={"second.x": "first.output"})
    assert [note.device for note in graph.annotations] == ["cuda:0", "cpu"]
    devices = devices_of(pipeline.plan(graph, BOARD), graph)
    assert [devices[operators[0]] for operators in (list(devices)[:2], list(devices)[2:])] == ["gpu", "cpu"]
