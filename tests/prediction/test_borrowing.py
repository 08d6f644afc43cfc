"""Parts of a stage: what its replicas compute, and what they copy."""

from typing import Any

import pytest

from pipeline.core.board.board import Board, Device, Link
from pipeline.core.plan.moves import find_moves
from pipeline.core.plan.plan import Plan
from pipeline.core.plan.stage_plan import StagePlan, TensorSpec
from pipeline.prediction.borrowing import replica_parts, stage_parts
from pipeline.prediction.contention import worker_phases

X, Y = TensorSpec("x", (1,)), TensorSpec("y", (1,))
# A tensor of four bytes moves in 1 + 4 / 4 seconds, there and back.
BOARD = Board("test", (Device("cpu"), Device("npu", "vta", memory="npu")), (Link(("host", "npu"), 4.0, 1.0),))
COPY_S = 4.0


def plan(device: str, **options: Any) -> Plan:
    return Plan("test", "", BOARD, (X,), (Y,), (StagePlan("s", device, (X,), (Y,), **options),))


@pytest.mark.parametrize(
    ("device", "options", "compute_s"),
    [
        ("cpu", {"seconds": 6.0}, [6.0]),
        ("npu", {"seconds": 6.0}, [6.0 - COPY_S]),
        # A copy that takes longer than all leaves nothing to compute.
        ("npu", {"seconds": 3.0}, [0.0]),
        ("cpu", {"seconds": 6.0, "replicas": 2}, [6.0, 6.0]),
        ("cpu", {"replicas": 2, "replica_seconds": (6.0, 3.0)}, [6.0, 3.0]),
        # What is copied takes as long in each replica.
        ("npu", {"replicas": 3, "replica_seconds": (6.0, 9.0, 5.0)}, [2.0, 5.0, 1.0]),
        ("npu", {"replicas": 2, "replica_seconds": (9.0, 3.0)}, [5.0, 0.0]),
        # Also where their mean leaves nothing to compute.
        ("npu", {"replicas": 2, "replica_seconds": (6.0, 3.0)}, [2.0, 0.0]),
    ],
)
def test_replicas_compute_what_is_not_copied(device: str, options: dict[str, Any], compute_s: list[float]) -> None:
    division = plan(device, **options)
    (stage,) = division.stages
    (parts,) = stage_parts(division, find_moves(division))
    times = [[part.compute_s for part in replica_parts(stage, parts, replica)] for replica in range(stage.replicas)]
    assert times == [[pytest.approx(seconds)] for seconds in compute_s]
    # The same as phases of its workers.
    (workers,) = worker_phases(BOARD, division.stages, [parts], {})
    copy_s = [COPY_S / 2] if device == "npu" else []
    assert [[phase.seconds for phase in phases] for phases in workers] == [
        pytest.approx([*copy_s, seconds, *copy_s]) for seconds in compute_s
    ]
