"""Search: schedules for one function, by MetaSchedule's evolutionary search."""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import s_tir
from tvm.s_tir import meta_schedule
from tvm.s_tir.meta_schedule import cost_model, database, runner, schedule_rule, search_strategy, space_generator

from pipeline.executor.tuning import workload
from pipeline.tvm.access import compiler_lock

BATCH = 4
"""Schedules that are measured before the next generation."""

# The budget is the tuner's; MetaSchedule only needs a number that no search reaches.
_TRIAL_LIMIT = 1 << 20


class Proposal(NamedTuple):
    """A schedule to be measured."""

    module: Any
    """A `tvm.IRModule`."""
    text: str
    source: Any = None
    """Key of the search itself."""


class ScheduleSearch:
    """Endless supply of schedules, evolved from the best measured.

    The function has no schedule yet. `trace` is the best one of an earlier search, as JSON, which took `trace_seconds`.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - what is known comes in two
        self, function: Any, target: Any, cores: int, seed: int, trace: str | None = None, trace_seconds: float = 1.0
    ) -> None:
        self._module = workload.module_of(function)
        self._target = workload.with_cores(target, cores)
        with _lock_compiler():
            # Of this search alone: the best schedules are kept in a file of our own.
            self._database = database.MemoryDatabase()
            self._workload = self._database.commit_workload(self._module)
            if trace is not None:
                self._remember(_trace(self._module, trace), trace_seconds)
            self._context = _context(self._module, self._target, seed + 1)
            spaces = self._context.generate_design_space()
            # A learned model would need XGBoost, and more measurements than a search here can take.
            model = cost_model.RandomModel(seed=seed)
            self._context.pre_tuning(_TRIAL_LIMIT, BATCH, spaces, self._database, model)

    def candidates(self) -> list[Proposal]:
        """Return the next few schedules, if any."""
        with _lock_compiler():
            candidates = list(self._context.generate_measure_candidates() or ())
            return [Proposal(candidate.sch.mod, _text_of(candidate), candidate) for candidate in candidates]

    def tell(self, candidates: Sequence[Proposal], seconds: Sequence[float | None]) -> None:
        """Receive the last candidates' seconds, None on failure."""
        with _lock_compiler():
            for candidate, duration in zip(candidates, seconds, strict=True):
                if duration is not None:
                    self._remember(candidate.source.sch.trace, duration)
            results = [runner.RunnerResult(None, "failed") if time_s is None else _result(time_s) for time_s in seconds]
            self._context.notify_runner_results([candidate.source for candidate in candidates], results)

    def _remember(self, trace: Any, seconds: float) -> None:
        record = database.TuningRecord(trace, self._workload, [seconds], self._target)
        self._database.commit_tuning_record(record)


@contextlib.contextmanager
def _lock_compiler() -> Iterator[None]:
    """Lock TVM's compiler, preserving NumPy's global generator."""
    state = np.random.get_state()  # noqa: NPY002 - see above
    try:
        with compiler_lock:
            yield
    finally:
        np.random.set_state(state)  # noqa: NPY002 - see above


def _text_of(candidate: Any) -> str:
    """Return a candidate's schedule as JSON."""
    # Numbers are TVM's own, whole ones and others.
    return json.dumps(candidate.sch.trace.as_json(), default=lambda number: number.value)


def _result(seconds: float) -> Any:
    return runner.RunnerResult([seconds], None)


def _trace(module: Any, text: str) -> Any:
    # Without verifying the whole module after each step.
    schedule = s_tir.Schedule(module, debug_mask="none")
    s_tir.Trace.apply_json_to_schedule(json.loads(text), schedule)
    return schedule.trace


def _context(module: Any, target: Any, seed: int) -> Any:
    # Not by its own constructor, which spends many seconds on importing the intrinsics of all accelerators.
    context = meta_schedule.TuneContext.__new__(meta_schedule.TuneContext)
    silent = logging.getLogger("pipeline.workflow.tune")
    silent.setLevel(logging.CRITICAL)
    context.__init_handle_by_constructor__(
        meta_schedule._ffi_api.TuneContext,  # noqa: SLF001 - see above
        module,
        target,
        _space(),
        # Small generations: without a model of the costs, only what was measured tells the good from the bad.
        search_strategy.EvolutionarySearch(
            population_size=32, init_min_unmeasured=8, genetic_num_iters=1, genetic_max_fail_count=4, eps_greedy=0.25
        ),
        "main",
        1,
        seed,
        meta_schedule.logging.get_logging_func(silent),
    )
    meta_schedule._ffi_api.TuneContextInitialize(context)  # noqa: SLF001 - see above
    return context


def _space() -> Any:
    """Return MetaSchedule's CPU space with less unrolling: it compiles in time."""
    # MetaSchedule's own for LLVM, but for the largest step of unrolling, 512.
    rules = [
        schedule_rule.InlineConstantScalars(),
        schedule_rule.AutoInline(
            into_producer=False,
            into_consumer=True,
            inline_const_tensor=True,
            disallow_if_then_else=True,
            require_injective=True,
            require_ordered=True,
            disallow_op=["tirx.exp"],
        ),
        schedule_rule.AddRFactor(max_jobs_per_core=16, max_innermost_factor=64),
        schedule_rule.MultiLevelTiling(
            structure="SSRSRS",
            max_innermost_factor=64,
            reuse_write=schedule_rule.ReuseType(req="may", levels=[1, 2], scope="global"),
        ),
        schedule_rule.ParallelizeVectorizeUnroll(
            max_jobs_per_core=16,
            max_vectorize_extent=64,
            unroll_max_steps=[0, 16, 64],
            unroll_explicit=True,
        ),
        schedule_rule.RandomComputeLocation(),
    ]
    return space_generator.PostOrderApply(sch_rules=rules, postprocs="llvm", mutator_probs="llvm")
