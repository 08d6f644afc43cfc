"""The tables against the drawn diagrams."""

from collections.abc import Callable

import pytest

from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.scheduler.wiring import SlotRead, SlotWrite, wire


def test_chain_in_one_memory_passes_by_reference(chain: Callable[..., Plan]) -> None:
    """x -> [a] -> [b] -> [c] -> caller: one copy in, none between, one out."""
    wiring = wire(chain(3), ["m"] * 3)
    a, b, c = wiring.stages
    assert a.reads == (SlotRead(0, 1),)
    assert wiring.inputs == (1,)
    assert b.reads == (SlotRead(2),)
    assert a.writes == (SlotWrite(slot=2),)
    assert c.writes == (SlotWrite(array=wiring.outputs[0]),)
    assert (wiring.roots, wiring.leaves) == ((0,), (2,))
    assert [stage.successors for stage in wiring.stages] == [(1,), (2,), ()]
    assert [stage.copies for stage in wiring.stages] == [True, False, True]
    assert set(wiring.readers) == {1}


def test_memories_are_crossed_once(graph: Callable[..., Plan]) -> None:
    """[a] in m feeds [b] in m, [c] and [d] both in n: one array, one copy for c and d together."""
    plan = graph({"a": ["x"], "b": ["a"], "c": ["a"], "d": ["a"]}, outputs=["b", "c", "d"])
    wiring = wire(plan, ["m", "m", "n", "n"])
    a, b, c, d = wiring.stages
    assert a.writes[0].slot == b.reads[0].slot
    assert b.reads[0].source is None
    assert a.writes[0].array == c.reads[0].source == d.reads[0].source
    assert c.reads == d.reads
    assert wiring.readers[c.reads[0].slot] == 2
    assert a.successors == (1, 2, 3)
    assert wiring.leaves == (1, 2, 3)


def test_skip_edge_and_model_input_of_a_later_stage(graph: Callable[..., Plan]) -> None:
    """[b] reads a, [c] reads a, b and the model input y; faults 1 and 10: bound by name, and counted right."""
    plan = graph({"a": ["x"], "b": ["a"], "c": ["y", "b", "a"]}, inputs=["x", "y"], outputs=["c"])
    wiring = wire(plan, ["m"] * 3)
    assert [stage.predecessors for stage in wiring.stages] == [(), (0,), (0, 1)]
    assert len(wiring.inputs) == 2
    assert wiring.stages[2].reads[0].source == wiring.inputs[1]
    assert wiring.stages[2].reads[1:] == (
        SlotRead(wiring.stages[1].writes[0].slot or 0),
        SlotRead(wiring.stages[0].writes[0].slot or 0),
    )


def test_unread_tensors_have_no_place(graph: Callable[..., Plan]) -> None:
    plan = graph({"a": ["x"]}, inputs=["x", "unused"], makes={"a": ["a", "waste"]}, outputs=["a"])
    wiring = wire(plan, ["m"])
    assert wiring.stages[0].writes[1] == SlotWrite(None, None)
    assert wiring.readers[wiring.inputs[1]] == 0


def test_model_input_that_is_a_model_output(graph: Callable[..., Plan]) -> None:
    wiring = wire(graph({"a": ["x"]}, outputs=["x", "a"]), ["m"])
    assert wiring.outputs[0] == wiring.inputs[0]
    assert wiring.readers[wiring.inputs[0]] == 2


@pytest.mark.parametrize("memories", [["m", "m"], ["m", "n"]])
def test_the_plan_is_not_changed(graph: Callable[..., Plan], memories: list[str]) -> None:
    """Fault 11: reading the configuration changed it."""
    plan, is_same = (
        graph({"a": ["x"], "b": ["a", "x"]}, outputs=["a", "b"], devices={"b": Device("other", "null")})
        for _ in range(2)
    )
    assert wire(plan, memories) == wire(plan, memories)
    assert plan == is_same
