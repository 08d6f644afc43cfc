"""Pipelines for tests of the live view."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import repeat, takewhile

import numpy as np

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.scheduler import Pipeline, Trace

BOARD = Board("board", (Device("device", "simulated"),))
IMAGE = np.linspace(0, 1, 24 * 32, dtype=np.float32).reshape(1, 1, 24, 32)
NAME = "<b>bold</b> & co"
"""A model's name that a page must not take for its own."""


def plan() -> Plan:
    """Return three stages, with a tensor that passes one of them by."""
    image, a, b, c, scores = (
        TensorSpec("image", (1, 1, 24, 32)),
        *(TensorSpec(name, (4,)) for name in "abc"),
        TensorSpec("scores", (1, 10)),
    )
    stages = (
        StagePlan("detect", "device", (image,), (a, b), seconds=0.001),
        StagePlan("refine", "device", (a,), (c,), seconds=0.002, replicas=2),
        StagePlan("classify", "device", (c, b), (scores,), seconds=0.001),
    )
    return Plan(NAME, "", BOARD, (image,), (scores,), stages)


@contextmanager
def pipeline(*, trace: bool = True) -> Iterator[Pipeline]:
    """Give a running pipeline."""
    with Pipeline(plan(), trace=Trace(5000) if trace else None) as running:
        yield running


@contextmanager
def streaming(running: Pipeline) -> Iterator[None]:
    """Let frames stream meanwhile."""
    stop = threading.Event()

    def stream() -> None:
        for _ in running.map(takewhile(lambda _: not stop.is_set(), repeat(IMAGE))):
            pass

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
