"""Bundles whose stages are Python functions, and a transport within the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.board import Board, Device
from pipeline.executor.bundle import Bundle
from pipeline.io.ros.configuration import Quality
from pipeline.io.ros.transport import Receive, Send, Transport
from pipeline.plans import Plan, StagePlan, TensorSpec

BOARD = Board("test", (Device("python", "python"),), ())


def bundle(function: Callable[..., Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Bundle:
    """Return one of two stages: the function, and one that passes its outputs on under their names."""
    between = tuple(TensorSpec(f"raw {each.name}", each.shape, each.dtype) for each in outputs)
    stages = (
        StagePlan("function", "python", tuple(inputs), between),
        StagePlan("pass", "python", between, tuple(outputs)),
    )
    plan = Plan("m", "d", BOARD, tuple(inputs), tuple(outputs), stages)
    return Bundle(plan, [function, lambda *arrays: arrays if len(arrays) > 1 else arrays[0]])


class Local(Transport):
    """Carries messages within the process, from whoever calls `send` to `receive`; keeps what is published."""

    def __init__(self) -> None:
        self.published: dict[str, list[tuple[bytes, int]]] = {}
        self.receivers: dict[str, tuple[str, Quality, Receive]] = {}
        self.stopped = False

    def subscribe(self, topic: str, kind: str, quality: Quality, receive: Receive) -> None:
        self.receivers[topic] = (kind, quality, receive)

    def publisher(self, topic: str, kind: str, quality: Quality) -> Send:
        kept = self.published.setdefault(topic, [])
        return lambda payload, stamp: kept.append((payload, stamp))

    def send(self, topic: str, payload: bytes) -> None:
        """Let the subscriber of a topic receive a message."""
        if not self.stopped:
            self.receivers[topic][2](payload)

    def stop(self) -> None:
        self.stopped = True

    def close(self) -> None:
        pass
