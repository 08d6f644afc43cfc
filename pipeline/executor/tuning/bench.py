"""Bench: times of a proposed schedule and the rule's, alone and in-stage."""

from __future__ import annotations

import contextlib
import itertools
import os
import select
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from pipeline.core.numerics import Numerics
from pipeline.core.plan.plan import StagePlan
from pipeline.executor.build import compile_stage
from pipeline.executor.executable import CompileOptions
from pipeline.executor.stage_code import StageCode
from pipeline.executor.tuning import workload
from pipeline.executor.tuning.database import Database
from pipeline.executor.tuning.kernel_times import of_calls
from pipeline.executor.tuning.lookup import TuningLookup
from pipeline.executor.tuning.tasks import Task
from pipeline.executor.tuning.worker import TimingReply, TimingRequest
from pipeline.system.closable import Closable
from pipeline.tvm.access import compiler_lock, tvm

TURNS = 3
"""Turns of a stage, without and with the proposals."""

LIMIT_S = 20.0
"""Time limit of compiling and timing one schedule, in seconds. Some would take LLVM minutes."""


class TrialTimes(NamedTuple):
    """Seconds of both, taken in turns."""

    rule: float
    candidate: float


class TrialBench(Protocol):
    """Measurements of a search."""

    def alone(self, task: Task, candidate: Any) -> TrialTimes | None:
        """Time a task's candidate module; None on failure."""

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[TrialTimes | None]:
        """Time a stage's tasks with their database records; None on failure."""


class ProcessBench(Closable):
    """Measures alone in a process, restarted on timeout or crash."""

    def __init__(self, limit_s: float = LIMIT_S) -> None:
        self._limit_s = limit_s
        self._process: subprocess.Popen[bytes] | None = None
        self._rule_codes: dict[StagePlan, StageCode] = {}

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is None:
            return
        # Not asked to end: deep inside of LLVM it would not hear.
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def alone(self, task: Task, candidate: Any) -> TrialTimes | None:
        """Time candidate and rule in turns; None on failure or slow compiling."""
        with compiler_lock:
            functions = task.rule, workload.replace_library_calls(candidate["main"])
            rule, candidate_text = (str(tvm.ir.save_json(workload.module_of(function))) for function in functions)
        request = TimingRequest(task.key.target, task.subject.stage.cores_of(0), rule, candidate_text)
        answer = self._request_times(msgspec.json.encode(request) + b"\n")
        return None if answer is None or answer.error else TrialTimes(answer.rule, answer.candidate)

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[TrialTimes | None]:
        """Build the stage both ways, and sum the tasks' calls."""
        stage, module, device = subject = tasks[0].subject
        if stage not in self._rule_codes:
            # Of one stage only: checks come stage by stage, and code holds all its stage's parameters.
            options = CompileOptions(numerics=Numerics())
            self._rule_codes = {stage: compile_stage(module, device, subject.cores, options)}
        keys = frozenset(task.key for task in tasks)
        # All tasks of the stage at once: each has its own calls in it, and building takes seconds.
        options = CompileOptions(tuning=TuningLookup(database, keys), numerics=Numerics())
        tuned_code = compile_stage(module, device, subject.cores, options)
        turns = [
            [of_calls(stage, code, device) for code in (self._rule_codes[stage], tuned_code)] for _ in range(TURNS)
        ]
        calls = self._rule_codes[stage].calls or ()
        return [_median_times([call.function in task.names for call in calls], turns) for task in tasks]

    def _request_times(self, line: bytes) -> TimingReply | None:
        # Kept for many requests: importing TVM takes longer than most measurements.
        process = self._process = self._process or self._start_process()
        if process.stdin is None or process.stdout is None:
            return None
        try:
            process.stdin.write(line)
            process.stdin.flush()
            # Not read before there is something: a read could not be given up.
            if select.select([process.stdout], [], [], self._limit_s)[0] and (reply := process.stdout.readline()):
                return msgspec.json.decode(reply, type=TimingReply)
        except (OSError, msgspec.MsgspecError):
            pass
        except BaseException:
            # An answer that nobody waits for would be taken for that to the next request.
            self.close()
            raise
        self.close()
        return None

    @staticmethod
    def _start_process() -> subprocess.Popen[bytes]:
        # The child imports what this process does, from a source tree too, and needs TVM's compiler.
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TVM_USE_RUNTIME_LIB": "0"}
        return subprocess.Popen(
            [sys.executable, "-m", "pipeline.executor.tuning.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            # What LLVM says of odd schedules is nothing for whoever tunes.
            stderr=subprocess.DEVNULL,
            env=environment,
            # Ctrl-C is for the search, which ends the process itself.
            start_new_session=True,
        )


def _median_times(selection: Sequence[bool], turns: Sequence[Sequence[Sequence[float]]]) -> TrialTimes | None:
    """Return a task's median times by rule and tuned.

    Kernels are known by their places, since a changed layout gives functions other names.
    """
    if any(len(times) != len(selection) for turn in turns for times in turn):
        return None
    # Medians of turns that alternate: a clock that slows down meanwhile, or one interrupted turn, harms no side alone.
    sums = [[sum(itertools.compress(times, selection)) for times in sides] for sides in zip(*turns, strict=True)]
    return TrialTimes(*(statistics.median(side) for side in sums))
