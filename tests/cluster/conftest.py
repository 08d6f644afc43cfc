"""A cluster of Ray on this machine, and bundles for it."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle

LIMIT = 90.0
ELEMENTS = 4


def bundle(seconds: float = 0.0, elements: int = ELEMENTS, stages: int = 2, kind: str = "simulated") -> Bundle:
    """Stages that pass a tensor on."""
    specs = [TensorSpec(f"t{number}", (elements,)) for number in range(stages + 1)]
    chain = [
        StagePlan(f"stage{number}", "there", (specs[number],), (specs[number + 1],), seconds=seconds)
        for number in range(stages)
    ]
    board = Board("made up", (Device("there", kind),))
    plan = Plan("chain", "", board, (specs[0],), (specs[-1],), tuple(chain))
    return Bundle(plan, [None] * stages)


def frame(number: int, elements: int = ELEMENTS) -> np.ndarray:
    return np.full(elements, number, np.float32)


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + LIMIT
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def all_ready(running: Any, count: int) -> bool:
    replicas = running.replicas
    return len(replicas) == count and all(each.is_ready for each in replicas)


@pytest.fixture(scope="session")
def cluster(own_cache: Any) -> Iterator[Any]:
    """Three nodes, each a process of its own on this machine; this process belongs to them."""
    ray = pytest.importorskip("ray", reason="needs ray: the extra 'ray'")
    # What Ray says of itself goes nowhere, and what it will change is no fault of ours.
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 4, "include_dashboard": False})
    try:
        for name in ("first", "second"):
            nodes.add_node(num_cpus=4, resources={name: 10})
        ray.init(address=nodes.address, log_to_driver=False, logging_level="ERROR")
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()
