"""Bench: how fast a proposed schedule is beside the rule, alone and inside of its stage."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import statistics
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any, NamedTuple, Protocol

import msgspec

from pipeline.executor.build import compile_stage
from pipeline.executor.code import StageCode
from pipeline.executor.kernel_times import of_calls
from pipeline.executor.tuning import workload
from pipeline.executor.tuning.database import Database
from pipeline.executor.tuning.tasks import Task
from pipeline.executor.tuning.use import Tuned
from pipeline.executor.tuning.worker import Answer, Request
from pipeline.plans import StagePlan
from pipeline.tvm_access import compiler_lock, tvm

TURNS = 3
"""Of the stage without and with what was found."""

LIMIT_S = 20.0
"""Of compiling and timing one schedule; some would take LLVM minutes."""


class Times(NamedTuple):
    """Seconds of both, taken in turns."""

    rule: float
    tuned: float


class Bench(Protocol):
    """What a search measures with."""

    def alone(self, task: Task, candidate: Any) -> Times | None:
        """Time a task's function as a candidate (a module) has it; None if that fails."""

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[Times | None]:
        """Time tasks of one stage in it, built with their records of the database; None for one where that fails."""


class ProcessBench:
    """Measures alone in a process of its own, that is ended and started anew if it takes too long or breaks down."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._plain: dict[StagePlan, StageCode] = {}

    def __enter__(self) -> ProcessBench:  # noqa: PYI034 - Self is newer than the oldest Python
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def alone(self, task: Task, candidate: Any) -> Times | None:
        """Time a candidate and the rule in turns; None if it fails, or takes too long to compile."""
        with compiler_lock:
            functions = task.rule, workload.finished(candidate["main"])
            rule, proposed = (str(tvm.ir.save_json(workload.module_of(each))) for each in functions)
        request = Request(task.key.target, task.subject.stage.cores_of(0), rule, proposed)
        answer = self._asked(msgspec.json.encode(request) + b"\n")
        return None if answer is None or answer.error else Times(answer.rule, answer.candidate)

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[Times | None]:
        """Build the stage twice, and add up the calls of each task's functions in both."""
        stage, module, device = subject = tasks[0].subject
        if stage not in self._plain:
            self._plain = {stage: compile_stage(module, device, subject.cores)}
        keys = frozenset(task.key for task in tasks)
        changed = compile_stage(module, device, subject.cores, tuning=Tuned(database, keys))
        turns = [[of_calls(stage, code, device) for code in (self._plain[stage], changed)] for _ in range(TURNS)]
        calls = self._plain[stage].calls or ()
        return [_compared([call.function in task.names for call in calls], turns) for task in tasks]

    def _asked(self, line: bytes) -> Answer | None:
        process = self._process = self._process or self._started()
        if process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            # Not read before there is something: a read could not be given up.
            if select.select([process.stdout], [], [], self._limit_s)[0] and (reply := process.stdout.readline()):
                return msgspec.json.decode(reply, type=Answer)
        except (OSError, msgspec.MsgspecError):
            pass
        except BaseException:
            # An answer that nobody waits for would be taken for that to the next request.
            self.close()
            raise
        self.close()
        return None

    @staticmethod
    def _started() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TVM_USE_RUNTIME_LIB": "0"}
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline.executor.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            # Ctrl-C is for the search, which ends the process itself.
            start_new_session=True,
        )


def _compared(own: Sequence[bool], turns: Sequence[Sequence[Sequence[float]]]) -> Times | None:
    """Return the medians over the turns of what a task's own calls take, in the plain stage and in the changed one.

    They are known by their places, since a changed layout gives functions other names.
    """
    if any(len(times) != len(own) for turn in turns for times in turn):
        return None
    sums = [[sum(itertools.compress(times, own)) for times in sides] for sides in zip(*turns, strict=True)]
    return Times(*(statistics.median(side) for side in sums))
