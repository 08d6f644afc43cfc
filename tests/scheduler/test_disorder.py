"""Failures, cancellations, several submitters and a close at any moment: every frame ends once, in order."""

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Any

import numpy as np
import pytest

from pipeline.core.plan.plan import Plan
from pipeline.errors import PipelineClosed, StageError
from pipeline.scheduler import FrameFuture, Pipeline


class Unreliable:
    """Fails now and then, and hands over the interpreter at odd moments."""

    def __init__(self, seed: int, outputs: int = 1) -> None:
        self.choose, self.outputs = random.Random(seed), outputs

    def __call__(self, *arrays: np.ndarray) -> Sequence[np.ndarray]:
        if self.choose.random() < 0.1:
            raise ValueError("now and then")
        if self.choose.random() < 0.2:
            threading.Event().wait(self.choose.random() * 0.001)
        # Whatever arrives together belongs to one frame.
        assert len({float(array[0]) for array in arrays}) == 1, "frames were mixed"
        return [arrays[0]] * self.outputs


def feed(running: Pipeline, choose: random.Random, futures: list[FrameFuture]) -> None:
    try:
        for number in range(40):
            future = running.submit(np.full(4, number, np.float32), timeout=30, copy=bool(number % 2))
            futures.append(future)
            if choose.random() < 0.1:
                choose.choice(futures).cancel()
    except PipelineClosed:
        pass


@pytest.mark.parametrize("seed", range(40))
def test_every_frame_ends_once(graph: Callable[..., Plan], functions: Any, seed: int) -> None:
    choose = random.Random(seed)
    tensors, stages = ["x"], {}
    for number in range(choose.randint(1, 6)):
        stages[f"s{number}"] = choose.sample(tensors, choose.randint(1, min(3, len(tensors))))
        tensors.append(f"s{number}")
    plan = graph(stages, outputs=tensors[-1:], queue_depth=choose.randint(1, 3), in_flight=choose.randint(0, 5))
    running = Pipeline(plan, [Unreliable(seed + number) for number in range(len(stages))], create=functions)
    futures: list[list[FrameFuture]] = [[] for _ in range(3)]
    ends = note_ends(running)
    feeders = [
        threading.Thread(target=feed, args=(running, random.Random(seed + 100 + number), futures[number]))
        for number in range(3)
    ]
    for feeder in feeders:
        feeder.start()
    if seed % 2:
        threading.Event().wait(choose.random() * 0.05)
    else:
        for feeder in feeders:
            feeder.join(60)
    running.close(drain=seed % 3 != 0)
    for feeder in feeders:
        feeder.join(60)
    submitted_frames = [future for each in futures for future in each]
    assert not wait(submitted_frames, 30).not_done
    assert sorted(future.sequence for future in submitted_frames) == list(range(len(submitted_frames)))
    assert ends == sorted(ends)
    check(running, submitted_frames)


def note_ends(running: Pipeline) -> list[int]:
    """Return the numbers of frames as they are delivered or fail."""
    ends: list[int] = []

    def watch(_: Sequence[np.ndarray], future: FrameFuture) -> None:
        watcher = threading.get_ident()

        def note(_: Future[Any]) -> None:
            # Called at once, in this thread, if the frame has ended already: then its turn has passed.
            if threading.get_ident() != watcher and not future.cancelled():
                ends.append(future.sequence)

        future.add_done_callback(note)

    running.observe(watch)
    return ends


def check(running: Pipeline, futures: Sequence[FrameFuture]) -> None:
    cancelled_frames = [future for future in futures if future.cancelled()]
    failed_frames = [future for future in futures if not future.cancelled() and future.exception() is not None]
    assert all(isinstance(future.exception(), StageError | PipelineClosed) for future in failed_frames)
    statistics = running.statistics()
    assert (statistics.submitted, statistics.in_flight) == (len(futures), 0)
    assert (statistics.cancelled, statistics.failed) == (len(cancelled_frames), len(failed_frames))
    assert statistics.delivered == len(futures) - len(cancelled_frames) - len(failed_frames)
