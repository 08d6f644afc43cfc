"""Pipeline: the caller's end of a running plan, with `FrameCalls` and `LifeCycle`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.core import arguments
from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build, OpenShapes
from pipeline.scheduler.change import Changes, RunnableBundle, check_codes
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.frame_calls import FrameCalls
from pipeline.scheduler.life_cycle import LifeCycle, watch
from pipeline.scheduler.options import PipelineKeywords, PipelineOptions
from pipeline.scheduler.original_calls import OriginalCalls
from pipeline.scheduler.pending_builds import PendingBuilds, SizeBuilder
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.switch_interval import SwitchInterval
from pipeline.scheduler.trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack
from pipeline.system import forks


class Pipeline(FrameCalls, LifeCycle):
    """Running plan: frames go in, results come out in order.

    Each stage has one worker thread per replica, each with its own device runtime.  Those of CPU stages rest when it is
    closed, without taking time of any core, and the next pipeline on the same cores uses them again.  Leaving the
    ``with`` block finishes what is in; leaving it by an exception gives up what is in and returns at once.

    Every frame that was submitted ends as exactly one of delivered, failed (`StageError`, `PipelineClosed`), cancelled
    and dropped (`FrameDropped`, with its reason).

    Parameters
    ----------
    plan : Plan or Bundle
        The stages, their devices and what travels between them.  A bundle has the code of its stages as well, also for
        frames of other sizes.
    codes : sequence, optional
        Code for each stage's device, in the plan's order; None if no stage has code.
    build : callable, optional
        Makes the stages for a size of frames that has none, when the first frame of it comes.

    Other Parameters
    ----------------
    create : callable
        Makes the runtime of a device.
    trace : Trace, optional
        Trace for the work of stages on frames.
    admission : Admission or str
        Treatment of a frame that finds no room: ``"block"`` (default), ``"latest"``, ``"drop-oldest"`` or
        ``"deadline"``.  An `Admission` has the next two in it.
    waiting : int
        Frames that may wait at the entrance, where the policy drops frames; 0 for its default.
    deadline : float
        Seconds after a frame's timestamp when its result is of no use any more, for ``"deadline"``.
    supervision : Supervision
        Treatment of stages that fail or hang; in place of the next three.
    on_error : str
        ``"skip"`` (default): a failed frame ends alone.  ``"stop"``: the first one ends the pipeline.
    stage_timeout : float or mapping of str to float, optional
        Seconds that a stage may run on one frame, for all stages or by name.
    on_timeout : str
        ``"fail-frame"`` (default) and restart the stage's device, or ``"fail-pipeline"``.
    switch_interval : float, optional
        Seconds after which a thread that is busy in Python hands over the interpreter, as long as the pipeline is
        open: for the whole process; see `pipeline.scheduler.switch_interval`.
    shapes, more, checksum : OpenShapes, sequence of Build, str
        Shapes, further sizes and checksum of a bundle, beside its `plan` and `codes`.

    Raises
    ------
    PlanError
        If the number of codes is not that of the stages.
    PipelineError
        If a device cannot be opened or a stage not loaded; no thread is left then.
    ArgumentError
        If an option is unknown, not in its range, or does not go with the others.

    Examples
    --------
    >>> with Pipeline(plan, codes) as running:  # doctest: +SKIP
    ...     for result in running.map(images):
    ...         print(result.argmax())
    """

    @arguments.names_keywords("Pipeline", PipelineKeywords)
    def __init__(
        self,
        plan: Plan | RunnableBundle,
        codes: Sequence[Any] | None = None,
        *,
        build: SizeBuilder | None = None,
        **keywords: Unpack[PipelineKeywords],
    ) -> None:
        options = PipelineOptions.of(**keywords)
        builds, shapes = _builds(plan, codes, keywords) if isinstance(plan, Plan) else (plan.builds, plan.shapes)
        options.supervision.check(stage.name for stage in builds[0].plan.stages)
        # Before the engine, whose threads it is for; taken back if they do not start.
        self._switch_interval = SwitchInterval(keywords.get("switch_interval"))
        try:
            self._engine = Engine(builds, shapes, options)
        except BaseException:
            self._switch_interval.end()
            raise
        self._pending_builds = PendingBuilds(self._engine, build)
        self._changes = Changes(self._engine, self._pending_builds)
        self._original_calls = OriginalCalls()
        # Last of all: there is nothing to end before the threads run.
        watch(self, self._engine)
        forks.watch(self)

    @property
    def checksum(self) -> str:
        """Checksum of the current bundle's manifest, empty if unsaved."""
        return self._engine.deployment.builds[0].checksum

    @property
    def trace(self) -> Trace | None:
        """Trace of events, None without tracing."""
        return self._engine.options.trace

    def set_input(self, name: str, value: Any) -> None:
        """Set one input to a copy of `value`, for all later `run`.

        Raises
        ------
        InputError
            If there is no such input, or its dtype or shape differs; nothing is set then.
        """
        self._original_calls.set_input(self._engine.deployment.check, name, value)

    def run(self, *, timeout: float | None = None) -> None:
        """Submit a frame of the set inputs, like `submit`.

        Raises
        ------
        InputError
            If an input has never been set.
        """
        inputs = self._original_calls.inputs([spec.name for spec in self.plan.inputs])
        # The values are snapshots already, but results must not share memory with the next run's inputs.
        self._original_calls.add(self.submit(inputs, timeout=timeout, copy=False))

    def get_output(self, *, timeout: float | None = None) -> list[np.ndarray]:
        """Return the outputs of `run`'s oldest frame, in plan order.

        Raises
        ------
        TimeoutError
            If it is not there within `timeout` seconds; the next call waits for the same frame.
        StageError
            If a stage failed on it; the next call waits for the next frame.
        PipelineClosed
            If the pipeline is closed and all outputs have been read.
        """
        return self._original_calls.outputs(arguments.time_limit("timeout", timeout))

    def set_params(self, group: str, values: Mapping[str, Any]) -> None:
        """Change a stage's parameters for later frames, without waiting.

        Parameters
        ----------
        group : str
            Name of the stage.
        values : mapping of str to array
            New values by the parameters' names; the others stay.  They are copied.

        Raises
        ------
        InputError
            If there is no such stage or parameter, or a dtype or shape differs; nothing is changed then.
        PipelineClosed
            If the pipeline is closed.
        """
        self._changes.set_params(group, values)

    def swap(self, bundle: RunnableBundle, *, timeout: float | None = None, grace: float | None = None) -> None:
        """Run another bundle for later frames, without waiting.

        Parameters
        ----------
        bundle : Bundle
            Bundle with the inputs and outputs of the one that it replaces; its stages may be others.
        timeout : float, optional
            Seconds for its devices to open.
        grace : float, optional
            Seconds to wait for the frames of the bundle before; those that have not ended then fail.

        Raises
        ------
        PlanError, PipelineError
            If it has other inputs or outputs, or cannot be loaded; nothing is changed then.
        PipelineClosed
            If the pipeline is closed.
        """
        self._changes.swap(bundle, arguments.time_limit("timeout", timeout), arguments.time_limit("grace", grace))

    def statistics(self) -> Statistics:
        """Return an immutable snapshot of the counts and times so far."""
        return self._engine.statistics()

    def latencies(self) -> list[float]:
        """Return up to 1024 newest latencies in seconds, unordered."""
        return self._engine.ledger.latency.values()

    def __repr__(self) -> str:
        stages = ", ".join(f"{stage.name} on {stage.device}" for stage in self.plan.stages)
        return f"<Pipeline {self.plan.model!r}, {'closed' if self.closed else 'running'}: {stages}>"


def _builds(
    plan: Plan, codes: Sequence[Any] | None, keywords: PipelineKeywords
) -> tuple[Sequence[Build], OpenShapes | None]:
    first_build = Build(plan, check_codes(plan, codes), checksum=keywords.get("checksum", ""))
    return [first_build, *keywords.get("more", ())], keywords.get("shapes")
