"""Worker: process compiling and timing proposals, isolated from the search.

Each line of its input is a request, each line of its output the answer.
"""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np

ROUNDS = 10
"""Rounds of alternating measurements; the least time of either counts."""

LEAST_S, ENOUGH_S = 2e-4, 0.3
"""Least seconds of one measurement, by repeating the call, and enough seconds of a comparison, after the second
round."""

HOPELESS = 2.0
"""Factor of time in the first call that ends a comparison."""


class TimingRequest(msgspec.Struct, frozen=True):
    """Two TVM modules as JSON with compatible `main` functions, timed in turns."""

    target: str
    cores: tuple[int, ...]
    rule: str
    candidate: str


class TimingReply(msgspec.Struct, frozen=True):
    """Seconds of both, or an error."""

    rule: float = 0.0
    candidate: float = 0.0
    error: str = ""


def main() -> None:
    """Answer requests until there are no more."""
    # Whatever native code prints must not get between the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin.buffer:
        try:
            answer = _answer(msgspec.json.decode(line, type=TimingRequest))
        except Exception as error:  # noqa: BLE001 - it is the answer
            answer = TimingReply(error=f"{type(error).__name__}: {error}")
        answers.write(msgspec.json.encode(answer) + b"\n")
        answers.flush()


def _answer(request: TimingRequest) -> TimingReply:
    _settle(request.cores)
    rule, arguments = _load_function(request.rule, request.target)
    candidate = _compile(request.candidate, request.target)["main"]
    seconds = in_turns([lambda: rule(*arguments), lambda: candidate(*arguments)])
    return TimingReply(rule=seconds[0], candidate=seconds[1])


@functools.cache
def _settle(cores: tuple[int, ...]) -> None:
    from pipeline.core.board.board import Device
    from pipeline.executor.devices.cpu import CpuRuntime

    CpuRuntime(Device("cpu")).open(cores)


# The rule's side and its arguments are the same for all candidates of a task, and a few tasks take turns.
@functools.lru_cache(maxsize=4)
def _load_function(text: str, target: str) -> tuple[Callable[..., Any], list[Any]]:
    from pipeline.tvm.access import tvm

    parameters = tvm.ir.load_json(text)["main"].params
    return _compile(text, target)["main"], [_argument(parameter) for parameter in parameters]


def _compile(text: str, target: str) -> Any:
    from pipeline.tvm.access import tvm

    return tvm.compile(tvm.ir.load_json(text), tvm.target.Target(msgspec.json.decode(target)))


def _argument(parameter: Any) -> Any:
    from pipeline.comparison.random_frame import random_frame
    from pipeline.core.plan.plan import TensorSpec
    from pipeline.tvm.access import tvm

    spec = TensorSpec("argument", tuple(int(extent) for extent in parameter.shape), str(parameter.dtype))
    return tvm.runtime.tensor(np.ascontiguousarray(random_frame([spec], 0)["argument"]))


def in_turns(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """Return the least seconds of each of two calls."""
    first = [_seconds(call, 1) for call in calls]
    # A first call also loads the code and touches its memory, so hopeless is only what is so twice.
    if first[1] > HOPELESS * first[0] and first[1] > LEAST_S:
        first = [min(first[0], _seconds(calls[0], 1)), min(first[1], _seconds(calls[1], 1))]
        if first[1] > HOPELESS * first[0]:
            return first
    # Calls shorter than the clock's resolution are repeated, and none is divided by zero.
    repeats = [max(1, int(LEAST_S / max(seconds, 1e-7))) for seconds in first]
    best_times, end = [float("inf")] * len(calls), time.perf_counter() + ENOUGH_S
    for number in range(ROUNDS):
        if number >= 2 and time.perf_counter() > end:
            break
        times = [_seconds(call, repeat) for call, repeat in zip(calls, repeats, strict=True)]
        best_times = list(map(min, best_times, times))
    return best_times


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    begin = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - begin) / repeats


if __name__ == "__main__":
    main()
