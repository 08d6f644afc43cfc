"""Random legal graphs of stages that add up integers, wait and fail: for both schedulers, Python's and the runner's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck
from hypothesis import strategies as st

from pipeline.core.board.board import Board
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec

MODULUS = 100_003

SETTINGS: Any = {
    "deadline": None,
    "derandomize": True,
    "database": None,
    "suppress_health_check": [HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
}


class Code(NamedTuple):
    """Work of a stage: adds up its inputs, with a factor, and is slow or fails on some of 16 kinds of frames."""

    factor: int = 1
    slow: frozenset[int] = frozenset()
    failing: frozenset[int] = frozenset()

    @property
    def parameter(self) -> np.ndarray:
        """What the runner's kernel reads."""
        masks = [sum(1 << kind for kind in kinds) for kinds in (self.slow, self.failing)]
        return np.array([self.factor, *masks], np.int64)


@dataclass(frozen=True)
class ArithmeticGraph:
    """Stage n makes tensor n + 1; tensor 0 is the model input, and what nobody reads comes out."""

    board: Board
    reads: tuple[tuple[int, ...], ...]
    devices: tuple[str, ...]
    depths: tuple[int, ...]
    replicas: tuple[int, ...]
    codes: tuple[Code, ...]
    in_flight: int

    @property
    def plan(self) -> Plan:
        """Its stages, each on its device."""
        specs = [TensorSpec(f"t{number}", (2,), "int64") for number in range(len(self.reads) + 1)]
        stages = tuple(
            StagePlan(
                f"s{number}",
                self.devices[number],
                tuple(specs[index] for index in reads),
                (specs[number + 1],),
                queue_depth=self.depths[number],
                replicas=self.replicas[number],
            )
            for number, reads in enumerate(self.reads)
        )
        read = {index for reads in self.reads for index in reads}
        outputs = tuple(spec for number, spec in enumerate(specs) if number not in read)
        return Plan("random", "", self.board, (specs[0],), outputs, stages, self.in_flight)

    def reference(self, value: int, factor: int = 1) -> dict[str, int]:
        """Return every tensor's value, one stage after the other; `factor` comes to that of each stage."""
        values = [value]
        for reads, code in zip(self.reads, self.codes, strict=True):
            values.append(sum(values[index] for index in reads) * code.factor * factor % MODULUS)
        return {f"t{number}": value for number, value in enumerate(values)}

    def failing(self, kind: int) -> set[str]:
        """Return the stages that fail on a kind of frames."""
        return {f"s{number}" for number, code in enumerate(self.codes) if kind in code.failing}


KINDS = st.frozensets(st.integers(0, 15), max_size=3)


@st.composite
def arithmetic_graphs(draw: st.DrawFn, board: Board) -> ArithmeticGraph:
    """Return a strategy for graphs of up to six stages on the devices of a board."""
    count = draw(st.integers(1, 6))
    reads = tuple(
        tuple(draw(st.lists(st.integers(0, number), min_size=1, max_size=3, unique=True))) for number in range(count)
    )

    def for_stages(strategy: st.SearchStrategy[Any]) -> tuple[Any, ...]:
        return tuple(draw(st.lists(strategy, min_size=count, max_size=count)))

    return ArithmeticGraph(
        board,
        reads,
        devices=for_stages(st.sampled_from([device.name for device in board.devices])),
        depths=for_stages(st.integers(1, 3)),
        replicas=for_stages(st.sampled_from([1, 1, 2, 3])),
        codes=for_stages(st.builds(Code, st.integers(1, 5), KINDS, KINDS)),
        in_flight=draw(st.integers(0, 5)),
    )
