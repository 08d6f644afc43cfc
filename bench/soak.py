"""Does anything get lost, doubled, mixed up or left behind in a million frames?

A random stage graph (fan-out, joins, replicas, two memories, channels of one to three places) gets frames from several
threads, while stages fail at random, frames are cancelled, and the bundle is swapped.  Every frame carries its number,
and each result is compared with the plain computation by the bundle that was there when the frame was submitted.

lost            frames whose future never ended, or that are in no book
duplicated      frames that ended more than once
out_of_order    frames delivered after a later one
wrong           results that differ, or ends that the books do not know
grown_mb        resident memory at the end minus that after a tenth of the frames
threads_left    threads that are there at the end and were not at the beginning

Its devices compute nothing; swaps.py looks at what real stages leave behind.
"""

from __future__ import annotations

import argparse
import os
import random
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import psutil
from report import Row, parser, report

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import StageError
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.null import NullRuntime
from pipeline.scheduler import FrameFuture, Pipeline

# A prime above all factors: a product is zero only if the value is, so every stage shows in the result.
MODULUS = 1_000_003
FEEDERS = 3
LIMIT = 60.0
"""Seconds without an end after which a frame counts as lost."""


class Code(NamedTuple):
    """A stage: adds up its inputs, times a factor; fails on one frame in `rarely`."""

    factor: int
    rarely: int


class Arithmetic(NullRuntime):
    """A null device that computes and fails."""

    def load(self, stage: StagePlan, code: Any) -> Any:
        return code, len(stage.outputs), random.Random(stage.name)

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        code, outputs, choose = program
        if choose.randrange(code.rarely) == 0:
            raise ValueError("at random")
        number = inputs[0][0]
        if any(array[0] != number for array in inputs):
            raise AssertionError("frames were mixed")
        return [np.array([number, sum(int(array[1]) for array in inputs) * code.factor % MODULUS])] * outputs


@dataclass
class Books:
    """Counts of the frames' ends as the caller sees them."""

    delivered: int = 0
    failed: int = 0
    cancelled: int = 0
    lost: int = 0
    wrong: int = 0
    duplicated: int = 0
    out_of_order: int = 0
    last: int = -1
    lock: Any = field(default_factory=threading.Lock)


class Soak:
    """One pipeline, its feeders and what they see.

    Parameters
    ----------
    frames : int
        How many to submit.
    seed : int
        Of all that is random.
    """

    def __init__(self, frames: int, seed: int) -> None:
        self.frames, self.choose, self.books = frames, random.Random(seed), Books()
        self.plan = random_plan(self.choose)
        self.factors = [self.choose.randint(1, 9) for _ in self.plan.stages]
        self.version = 1
        self.swaps = 0
        self._submitting = threading.Lock()

    def run(self) -> Row:
        """Feed the pipeline, then compare."""
        process = psutil.Process(os.getpid())
        threads = set(threading.enumerate())
        begin_s, early_rss = perf_counter(), 0
        with Pipeline(self.plan, self.codes(1), create=Arithmetic) as running:
            self.feed(running, self.frames // 10)
            # Behind a tenth of the frames: by then the allocator's arenas have their size.
            early_rss = process.memory_info().rss
            self.feed(running, self.frames - self.frames // 10)
        growth = process.memory_info().rss - early_rss
        statistics, books = running.statistics(), self.books
        end_counts = (books.delivered, books.failed, books.cancelled)
        return {
            "stages": len(self.plan.stages),
            "replicas": sum(stage.replicas for stage in self.plan.stages),
            "frames": statistics.submitted,
            "delivered": books.delivered,
            "failed": books.failed,
            "cancelled": books.cancelled,
            "swaps": self.swaps,
            "lost": books.lost + statistics.in_flight + abs(statistics.submitted - sum(end_counts) - books.lost),
            "duplicated": books.duplicated,
            "out_of_order": books.out_of_order,
            "wrong": books.wrong + (end_counts != (statistics.delivered, statistics.failed, statistics.cancelled)),
            "grown_mb": growth / 1e6,
            "threads_left": len(set(threading.enumerate()) - threads),
            "frames_per_s": statistics.submitted / (perf_counter() - begin_s),
        }

    def codes(self, version: int) -> list[Code]:
        """Return the stages of one version of the bundle."""
        return [Code(factor * version, 500) for factor in self.factors]

    def feed(self, running: Pipeline, frames: int) -> None:
        """Submit frames from several threads and swap the bundle now and then."""
        feeders = [
            threading.Thread(target=self._feed, args=(running, frames // FEEDERS, seed)) for seed in range(FEEDERS)
        ]
        for feeder in feeders:
            feeder.start()
        while any(feeder.is_alive() for feeder in feeders):
            feeders[0].join(self.choose.random() * 0.05)
            self._swap(running)

    def _swap(self, running: Pipeline) -> None:
        version = self.choose.randint(1, 5)
        # So that it is known which frames are before and which behind it.
        with self._submitting:
            running.swap(Bundle(self.plan, self.codes(version)))
            self.version = version
            self.swaps += 1

    def _feed(self, running: Pipeline, frames: int, seed: int) -> None:
        choose = random.Random(seed)
        pending: deque[FrameFuture] = deque()
        for number in range(frames):
            value = choose.randrange(MODULUS)
            with self._submitting:
                future = running.submit(np.array([number, value]), metadata=(number, value, self.version), copy=False)
            pending.append(future)
            if choose.random() < 0.05:
                pending[-1].cancel()
            while len(pending) > 50:
                self._settle(pending.popleft())
        while pending:
            self._settle(pending.popleft())

    def _settle(self, future: FrameFuture) -> None:
        """Wait for a frame and compare its end with what should have come of it."""
        if wait([future], LIMIT).not_done:
            end, is_right = "lost", True
        elif future.cancelled():
            end, is_right = "cancelled", True
        elif (error := future.exception()) is not None:
            end, is_right = "failed", isinstance(error, StageError) and "at random" in str(error)
        else:
            end, is_right = "delivered", self._compute_outputs(*future.metadata) == numbers(future.outputs())
        with self.books.lock:
            setattr(self.books, end, getattr(self.books, end) + 1)
            self.books.wrong += not is_right

    def _compute_outputs(self, number: int, value: int, version: int) -> list[tuple[int, int]]:
        values = {"t0": value}
        for stage, code in zip(self.plan.stages, self.codes(version), strict=True):
            values[stage.outputs[0].name] = sum(values[spec.name] for spec in stage.inputs) * code.factor % MODULUS
        return [(number, values[spec.name]) for spec in self.plan.outputs]


def note_deliveries(books: Books) -> Callable[[FrameFuture, Any], None]:
    """Return what ends a frame, and notes it as it happens: the pipeline delivers one frame at a time."""
    end = FrameFuture.set_result

    def set_result(future: FrameFuture, result: Any) -> None:
        books.duplicated += future.done()
        books.out_of_order += future.sequence <= books.last
        books.last = future.sequence
        end(future, result)

    return set_result


def numbers(outputs: Mapping[str, np.ndarray]) -> list[tuple[int, int]]:
    """Return the frame's number and value in each output."""
    return [(int(array[0]), int(array[1])) for array in outputs.values()]


def random_plan(choose: random.Random) -> Plan:
    """Return four to eight stages; each reads up to three tensors before it, and what nobody reads comes out."""
    specs = [TensorSpec("t0", (2,), "int64")]
    stages = []
    for number in range(choose.randint(4, 8)):
        reads = tuple(choose.sample(specs, choose.randint(1, min(3, len(specs)))))
        specs.append(TensorSpec(f"t{number + 1}", (2,), "int64"))
        stages.append(
            StagePlan(
                f"s{number}",
                choose.choice("mn"),
                reads,
                (specs[-1],),
                queue_depth=choose.randint(1, 3),
                replicas=choose.choice((1, 1, 2, 3)),
            )
        )
    read = {spec.name for stage in stages for spec in stage.inputs}
    board = Board("random", tuple(Device(name, "null", memory=name) for name in "mn"))
    out = tuple(spec for spec in specs if spec.name not in read)
    return Plan("soak", "", board, (specs[0],), out, tuple(stages))


def soak(frames: int, seed: int = 0) -> Row:
    """Run once and return what came of it."""
    run = Soak(frames, seed)
    with mock.patch.object(FrameFuture, "set_result", note_deliveries(run.books)):
        return run.run()


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__)
    options.add_argument("--frames", type=int, default=1_000_000, help="how many (default: %(default)s)")
    options.add_argument("--seed", type=int, default=0, help="of all that is random")
    arguments = options.parse_args()
    frames = 30_000 if arguments.quick else arguments.frames
    report("Soaking a random pipeline", [soak(frames, arguments.seed)], __doc__ or "", arguments.json)


if __name__ == "__main__":
    main()
