"""Pipeline: the caller's end of a running plan, with `FrameCalls` and `LifeCycle`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.core import arguments
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build, OpenShapes
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.change import Changes, RunnableBundle, check_codes
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.frame_calls import FrameCalls
from pipeline.scheduler.life_cycle import LifeCycle
from pipeline.scheduler.options import PipelineOptions, Supervision
from pipeline.scheduler.original_calls import OriginalCalls
from pipeline.scheduler.pending_builds import PendingBuilds, SizeBuilder
from pipeline.scheduler.statistics import Statistics
from pipeline.scheduler.switch_interval import SwitchInterval
from pipeline.scheduler.trace import Trace
from pipeline.scheduler.unclosed import watch
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
    plan : Plan
        The stages, their devices and what travels between them.
    codes : sequence, optional
        What each stage's device loads, in the plan's order; None if no stage has code.
    create : callable, optional
        Makes the runtime of a device.
    trace : Trace, optional
        Where to note which stage worked on which frame when.
    admission : str
        What happens to a frame that finds no room: ``"block"``, ``"latest"``, ``"drop-oldest"`` or ``"deadline"``;
        see `Admission`.
    waiting : int
        How many frames may wait at the entrance, where the policy drops frames; 0 for its default.
    deadline : float
        Seconds after a frame's timestamp when its result is of no use any more, for ``"deadline"``.
    on_error : str
        ``"skip"``: a failed frame ends alone.  ``"stop"``: the first one ends the pipeline; see `Supervision`.
    stage_timeout : float or mapping of str to float, optional
        Seconds that a stage may run on one frame, for all stages or by name.
    on_timeout : str
        ``"fail-frame"`` and restart the stage's device, or ``"fail-pipeline"``.
    switch_interval : float, optional
        Seconds after which a thread that is busy in Python hands over the interpreter, as long as the pipeline is
        open: for the whole process; see `pipeline.scheduler.switch_interval`.
    shapes : OpenShapes, optional
        What varies in the shapes of the inputs.
    more : sequence of Build
        The stages for frames of other sizes than the plan's.
    build : callable, optional
        Makes such a build for a size that has none, when the first frame of it comes.
    checksum : str
        Of the manifest of the bundle, by which versions are told apart.

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

    def __init__(  # noqa: PLR0913 - all but the first two by keyword
        self,
        plan: Plan,
        codes: Sequence[Any] | None = None,
        *,
        create: Callable[[Device], DeviceRuntime] = devices.create,
        trace: Trace | None = None,
        admission: str = "block",
        waiting: int = 0,
        deadline: float = math.inf,
        on_error: str = "skip",
        stage_timeout: float | Mapping[str, float] | None = None,
        on_timeout: str = "fail-frame",
        switch_interval: float | None = None,
        shapes: OpenShapes | None = None,
        more: Sequence[Build] = (),
        build: SizeBuilder | None = None,
        checksum: str = "",
    ) -> None:
        supervision = Supervision(on_error, {} if stage_timeout is None else stage_timeout, on_timeout)
        supervision.check(stage.name for stage in plan.stages)
        options = PipelineOptions(create, Admission(admission, waiting, deadline), supervision, trace)
        # Before the engine, whose threads it is for; taken back if they do not start.
        self._switch_interval = SwitchInterval(switch_interval)
        try:
            first_build = Build(plan, check_codes(plan, codes), checksum=checksum)
            self._engine = Engine([first_build, *more], shapes, options)
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
            Its inputs and outputs are those of the bundle that it replaces; its stages may be others.
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
