"""A plan's JSON file is exactly its fields; what is no plan is refused, saying why."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, decode, encode
from pipeline.errors import PlanError
from tests.support.random_plans import random_step_plan
from tests.support.small_plans import plan, skip_plan, spec, stage


def test_the_file_gives_back_the_plan(tmp_path: Path) -> None:
    """Fault 14: the device of each stage, with its index, is the same after loading."""
    plan = skip_plan()
    plan.save(tmp_path / "plan.json")
    loaded = Plan.load(tmp_path / "plan.json")
    assert loaded == plan
    assert [loaded.board.device(each.device).index for each in loaded.stages] == [0, 3, 0]
    assert encode(loaded) == encode(plan)
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_the_file_is_exactly_the_fields(tmp_path: Path) -> None:
    content = json.loads(encode(skip_plan()))
    assert set(content) == {field.name for field in dataclasses.fields(Plan)}
    assert set(content["stages"][0]) == {field.name for field in dataclasses.fields(StagePlan)}
    assert content["format"] == 2


def test_fields_that_are_missing_have_their_defaults() -> None:
    content = json.loads(encode(skip_plan()))
    del content["stages"][0]["queue_depth"], content["in_flight"], content["board"]["devices"][0]["flops"]
    assert decode(json.dumps(content).encode(), "here") == skip_plan()


def expect_refusal(data: bytes, message: str) -> None:
    with pytest.raises(PlanError, match=message) as caught:
        decode(data, "plan.json")
    assert str(caught.value).startswith("plan.json: ")
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "data", [b"", b"hello", b"[]", b"3", b'{"format": "1"}', b"\xff\xfe", b"null", b'{"format": 2}']
)
def test_what_is_no_plan_is_refused(data: bytes) -> None:
    expect_refusal(
        data, "not a plan: .*; make one with 'soc-pipeline plan'" if data != b'{"format": 2}' else "not a plan: .*model"
    )


@pytest.mark.parametrize("share", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_refused(share: float) -> None:
    data = encode(skip_plan())
    expect_refusal(data[: int(len(data) * share)], "not a plan")


def test_a_newer_format_is_refused_before_all_else() -> None:
    expect_refusal(b'{"format": 7, "stages": "of another kind"}', "plan format 7, but this version reads format 2")


def test_a_plan_of_the_first_format_is_read() -> None:
    plan = skip_plan()
    content = json.loads(encode(plan))
    content["format"] = 1
    for fields in content["stages"]:
        fields["moving"] = fields.pop("transfer_s")
    assert decode(json.dumps(content).encode(), "plan.json") == plan


@pytest.mark.parametrize(
    ("select", "name", "path"),
    [
        (lambda content: content, "in_fligth", "in_fligth"),
        (lambda content: content["stages"][1], "queue_dept", r"stages\.1\.queue_dept"),
        (lambda content: content["board"]["devices"][0], "core", r"board\.devices\.0\.core"),
        (lambda content: content["inputs"][0], "type", r"inputs\.0\.type"),
    ],
)
def test_a_misspelt_field_is_refused(select: Callable[[Any], Any], name: str, path: str) -> None:
    """Else a plan written by hand would silently not do what it says."""
    content = json.loads(encode(skip_plan()))
    select(content)[name] = 3
    expect_refusal(json.dumps(content).encode(), f"unknown field '{path}'; correct or remove it")


def test_targets_may_have_any_fields() -> None:
    content = json.loads(encode(skip_plan()))
    content["board"]["devices"][1]["target"]["anything"] = {"at": ["all"]}
    assert decode(json.dumps(content).encode(), "here").board.devices[1].target is not None


def set_quantization(**wrong: Any) -> Callable[[Any], None]:
    """Return what adds a quantisation of the output to a file, wrong in some field."""
    fields = {"tensor": "y", "scale": [0.5], "zero_point": [0], "axis": 0, **wrong}
    return lambda content: content.update(quantization=[fields])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["stages"].reverse(), "not a plan: stage 'third' reads 'c', which the later stage"),
        (lambda content: content["stages"][0].update(device="gpu"), "not a plan: board 'test' has no device 'gpu'"),
        (lambda content: content["stages"][0].update(queue_depth="two"), "not a plan: Expected `int`, got `str`"),
        (lambda content: content["stages"][0].update(queue_depth=0), "not a plan: stage 'first': queue_depth is 0"),
        (lambda content: content["inputs"][0].update(shape=[1.5]), "not a plan: Expected `int`"),
        (lambda content: content["board"].update(devices=[]), "not a plan: board 'test' has no devices"),
        (set_quantization(scale=[0.0]), r"not a plan: the scales of tensor 'y' are \[0\.0\]; they must be above 0"),
        (set_quantization(zero_point=[]), "not a plan: tensor 'y' has 1 scales and 0 zero points"),
        (set_quantization(scale=[1.0] * 3, zero_point=[0] * 3), "not a plan: tensor 'y' has 3 scales along axis 0 of"),
        (
            set_quantization(scale=[1.0] * 3, zero_point=[0] * 3, axis=7),
            "not a plan: tensor 'y' has 3 scales along axis 7 of",
        ),
    ],
)
def test_an_impossible_file_says_why(change: Callable[[Any], None], message: str) -> None:
    content = json.loads(encode(skip_plan()))
    change(content)
    expect_refusal(json.dumps(content).encode(), message)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cannot read plan '.*gone.json': No such file or directory; make one with"):
        Plan.load(tmp_path / "gone.json")
    with pytest.raises(PlanError, match=r"cannot read plan .*: Is a directory"):
        Plan.load(tmp_path)


def test_a_file_is_replaced_only_once_the_new_one_is_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_plan().save(tmp_path / "plan.json")
    data = (tmp_path / "plan.json").read_bytes()

    def fail(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(PlanError, match=r"cannot write plan '.*plan.json': No space left on device"):
        dataclasses.replace(skip_plan(), in_flight=5).save(tmp_path / "plan.json")
    assert (tmp_path / "plan.json").read_bytes() == data
    assert [path.name for path in tmp_path.iterdir()] == ["plan.json"]


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"cannot write plan .*gone"):
        skip_plan().save(tmp_path / "gone" / "plan.json")


def changed_file(path: Path, change: Callable[[Any], None]) -> Path:
    content = json.loads(encode(skip_plan()))
    change(content)
    path.write_text(json.dumps(content))
    return path


def test_a_file_whose_board_lacks_a_link_is_refused(tmp_path: Path) -> None:
    path = changed_file(tmp_path / "plan.json", lambda content: content["board"].update(links=[]))
    message = r"plan.json: tensor 'a' cannot travel: board 'test' has no link between 'host' .* and 'far'"
    with pytest.raises(PlanError, match=message):
        Plan.load(path)
    # Of stages made by hand in Python, the board need not say it.
    assert decode(path.read_bytes(), "here").board.links == ()


def test_a_file_whose_steps_lack_a_link_is_refused(tmp_path: Path) -> None:
    step_plan = random_step_plan(0)
    unlinked_plan = replace(step_plan, board=replace(step_plan.board, links=()))
    step_plan.save(tmp_path / "linked.json")
    unlinked_plan.save(tmp_path / "unlinked.json")
    assert Plan.load(tmp_path / "linked.json") == step_plan
    with pytest.raises(PlanError, match=r"unlinked.json: tensor .* cannot travel: board 'steps' has no link"):
        Plan.load(tmp_path / "unlinked.json")


ORDERS: dict[str, tuple[str, str]] = {
    "unknown operator": ("one two five", "the order lacks the operator 'four' of stage 'second'"),
    "backwards": ("two one four", "stage 'first' has the operators 'one' to 'two', which in the order do not follow"),
    "stages swapped": ("four one two", "stage 'first' has the operators 'one' to 'two', which in the order"),
    "operator between": ("one two three four", "stage 'second' has the operators 'four' to 'four', which in the order"),
    "operator behind": ("one two four five", "the order has the operator 'five', which is in no stage"),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_file_whose_order_the_stages_do_not_follow_is_refused(tmp_path: Path, name: str) -> None:
    stages = (
        stage("first", "x", "a", operators=("one", "two")),
        stage("second", "a", "y", operators=("four", "four")),
    )
    order, message = ORDERS[name]
    path = tmp_path / "plan.json"
    plan(*stages, order=("one", "two", "four")).save(path)
    assert Plan.load(path).order == ("one", "two", "four")
    plan(*stages, order=tuple(order.split())).save(path)
    with pytest.raises(PlanError, match=f"plan.json: {message}"):
        Plan.load(path)


def test_a_file_with_a_core_that_its_board_lacks_is_refused(tmp_path: Path) -> None:
    path = changed_file(tmp_path / "plan.json", lambda content: content["stages"][0].update(cores=[17]))
    with pytest.raises(PlanError, match=r"plan\.json: stage 'first': board 'test' has no core 17; it has 0, 1"):
        Plan.load(path)
    # On another machine, a plan has its cores.
    leased = replace(skip_plan(), stages=(replace(skip_plan().stages[0], cores=(17,)), *skip_plan().stages[1:]))
    assert decode(encode(leased), "here") == leased


def test_a_part_of_a_plan_keeps_the_order_of_all(tmp_path: Path) -> None:
    steps = (
        StepPlan("cpu", ("one", "one"), (spec("x"),), (spec("a"),)),
        StepPlan("far", ("two", "two"), (spec("a"),), (spec("b"),)),
    )
    first = stage("first", "x", "b", operators=("one", "two"), steps=steps)
    both = plan(first, stage("second", "b", "y", operators=("three", "three")), order=("one", "two", "three"))
    both.save(tmp_path / "plan.json")
    assert Plan.load(tmp_path / "plan.json") == both
    assert both.steps_plan(first).order == both.order
