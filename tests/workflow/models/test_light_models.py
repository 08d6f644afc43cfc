"""Nine well-known networks: however they are cut, the answer is that of the unsplit model and of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import models
import numpy as np
import psutil
import pytest

import pipeline
from pipeline.split.cuts import legal_cuts
from pipeline.split.graph import Graph

pytestmark = pytest.mark.thorough

# That of the fast tests, of which the next one takes a skip: it is read and built unsplit once for both.
QUICK = "shufflenet"
SLOW = (pytest.mark.slow, pytest.mark.timeout(900))
Networks = Callable[[str], Any]


def cases() -> Iterator[Any]:
    for name in models.NAMES:
        for stages in (2, 3, 4):
            quick = name == QUICK and stages == 3
            yield pytest.param(name, stages, marks=() if quick else SLOW)


@pytest.mark.parametrize(("name", "stages"), list(cases()))
def test_automatic_stages_give_the_unsplit_answer(network: Networks, name: str, stages: int) -> None:
    network(name).check(stages=stages)


# In shares, so that several processes can divide them.
@pytest.mark.parametrize(
    ("name", "share", "shares"),
    [
        pytest.param(name, share, shares, marks=SLOW)
        for name, shares in (("squeezenet", 4), ("inception_v1", 12))
        for share in range(shares)
    ],
)
def test_every_legal_cut_gives_the_unsplit_answer(network: Networks, name: str, share: int, shares: int) -> None:
    answer = network(name)
    cuts = legal_cuts(answer.graph)
    # Equal shares of everything between the first and the last cut.
    assert len(cuts) == len(answer.graph.group_ends) - 1 > shares
    for cut in cuts[share::shares]:
        answer.check(cuts=[cut.position])


@pytest.mark.parametrize(
    "name", ["shufflenet", *(pytest.param(each, marks=SLOW) for each in ("resnet50", "densenet121", "inception_v1"))]
)
def test_a_tensor_may_skip_stages(network: Networks, name: str) -> None:
    answer = network(name)
    tensor, positions = longest_skip(answer.graph)
    plan = pipeline.plan(answer.graph, cuts=positions)
    reading = [any(spec.name == tensor for spec in stage.inputs) for stage in plan.stages]
    assert len(positions) > 1
    assert tensor in {spec.name for spec in plan.stages[0].outputs}
    assert reading == [False] * len(positions) + [True]
    answer.check(cuts=positions)


def longest_skip(graph: Graph) -> tuple[str, list[int]]:
    """Return the tensor that the most legal cuts lie between two uses of, and (at most three of) these cuts."""
    uses: dict[str, list[int]] = {}
    for position, operator in enumerate(graph.operators):
        for tensor in (*operator.inputs, *operator.outputs):
            uses.setdefault(tensor, []).append(position)
    output = {tensor for operator in graph.operators for tensor in operator.outputs}
    gaps = [
        (tensor, [end for end in graph.group_ends[:-1] if begin < end <= next_])
        for tensor in output
        for begin, next_ in pairwise(uses[tensor])
    ]
    tensor, cuts = max(gaps, key=lambda gap: (len(gap[1]), gap[0]))
    return tensor, cuts if len(cuts) < 4 else [cuts[0], cuts[len(cuts) // 2], cuts[-1]]


@pytest.mark.parametrize("name", [pytest.param(each, marks=SLOW) for each in ("squeezenet", "resnet50", "densenet121")])
def test_no_parameter_is_in_two_stages(network: Networks, name: str) -> None:
    answer = network(name)
    bundle = pipeline.build(answer.graph, pipeline.plan(answer.graph, stages=4), check=False)
    sizes = [sum(array.nbytes for array in code.parameters.values()) for code in bundle.codes if code]
    assert min(sizes) > 0
    assert sum(sizes) == answer.parameter_bytes


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_stays_flat_while_frames_stream(network: Networks) -> None:
    answer = network("shufflenet")
    bundle = pipeline.build(answer.graph, pipeline.plan(answer.graph, stages=4), check=False)
    process = psutil.Process()
    with pipeline.load(bundle) as running:
        last = list(running.map([answer.frame] * 50))[-1]
        initial_bytes = process.memory_info().rss
        for result in running.map([answer.frame] * 200):
            last = result
        growth = process.memory_info().rss - initial_bytes
    assert np.isfinite(last).all()
    assert growth < 5e6


def test_the_same_name_gives_the_same_network() -> None:
    first, second = (models.load("squeezenet").SerializeToString(deterministic=True) for _ in range(2))
    assert first == second
