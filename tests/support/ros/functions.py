"""Bundles whose stages are Python functions, and a transport within the process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.executor.bundle import Bundle
from pipeline.ros.configuration import Quality
from pipeline.ros.transports.base import Endpoint, Payload, Receive, Sender, Transport

BOARD = Board("test", (Device("python", "python"),), ())


def bundle(function: Callable[..., Any], inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Bundle:
    """Return one of two stages: the function, and one that passes its outputs on under their names."""
    tensors = tuple(TensorSpec(f"raw {each.name}", each.shape, each.dtype) for each in outputs)
    stages = (
        StagePlan("function", "python", tuple(inputs), tensors),
        StagePlan("pass", "python", tensors, tuple(outputs)),
    )
    plan = Plan("m", "d", BOARD, tuple(inputs), tuple(outputs), stages)
    return Bundle(plan, [function, lambda *arrays: arrays if len(arrays) > 1 else arrays[0]])


class Local(Transport):
    """Carries messages within the process, from whoever calls `send` to `receive`; keeps what is published."""

    def __init__(self) -> None:
        self.published: dict[str, list[tuple[Payload, int]]] = {}
        self.receivers: dict[str, tuple[str, Quality, Receive]] = {}
        self.losers: dict[str, Receive] = {}
        self.is_stopped, self.subscribers = False, 1

    def subscribe(
        self, topic: str, kind: str, quality: Quality, receive: Receive, lose: Receive = lambda _: None
    ) -> Endpoint:
        self.losers[topic] = lose
        self.receivers[topic] = (kind, quality, receive)
        return Endpoint(lambda: 1, lambda: self.receivers.pop(topic, None))

    def publisher(self, topic: str, kind: str, quality: Quality) -> Sender:
        messages = self.published.setdefault(topic, [])
        return Sender(lambda: self.subscribers, send=lambda payload, stamp: messages.append((payload, stamp)))

    def send(self, topic: str, payload: Payload) -> None:
        """Let the subscriber of a topic receive a message."""
        if not self.is_stopped:
            self.receivers[topic][2](bytes(payload))

    def read(self, *_: object) -> Endpoint:
        raise AssertionError("messages come without a line")

    def stop_reading(self) -> None: ...

    def stop(self) -> None:
        self.is_stopped = True

    def close(self) -> None:
        pass
