"""Changes of a running pipeline: parameters or bundle, at frame boundaries.

The workers for the new code are started and loaded beside those at work.  Then, at once, new frames go to the new
workers; frames that are in stay where they are, and their workers end after the last of them.  So every frame meets
one bundle only, and if the new one cannot be loaded nothing has changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from pipeline.core.plan.plan import Plan
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import InputError, PipelineError, PlanError, near
from pipeline.scheduler.deployment import Deployment
from pipeline.scheduler.engine import Engine
from pipeline.scheduler.inputs import read_array
from pipeline.scheduler.pending_builds import PendingBuilds
from pipeline.system.memory import snapshot
from pipeline.system.threads import call_in_time


class RunnableBundle(Protocol):
    """A bundle, as `Pipeline.swap` takes it."""

    @property
    def builds(self) -> Sequence[Build]:
        """The stages, for each size of frames."""

    @property
    def shapes(self) -> OpenShapes | None:
        """Extents that vary between builds."""


class Changes:
    """Calls behind `Pipeline.set_params` and `Pipeline.swap`; they do not wait for frames.

    `pending_builds`: source of builds on demand.  It makes no more, since their stages change.
    """

    def __init__(self, engine: Engine, pending_builds: PendingBuilds) -> None:
        self._engine, self._pending_builds = engine, pending_builds

    def set_params(self, stage: str, values: Mapping[str, Any]) -> None:
        """Replace parameters of a stage or step."""
        with self._engine.changing:
            deployment = self._engine.deployment
            # Held until the new workers are there, which takes seconds: of two changes at once, each would start from
            # the same deployment, and the later one would undo the other.
            names = [unit.name for unit in deployment.plan.units]
            if stage not in names:
                raise InputError(f"no stage is called {stage!r}; there are {', '.join(names)}{near(stage, names)}")
            number = names.index(stage)
            # A build for another size of frames has code of its own, which has to change as well.
            builds = [_replace_parameters(build, number, values) for build in deployment.builds]
            self._bring(builds, deployment.shapes)

    def swap(self, bundle: RunnableBundle, timeout: float | None = None, grace: float | None = None) -> None:
        """Bring another bundle, with the same inputs and outputs."""
        with self._engine.changing:
            plan, successor = self._engine.deployment.plan, bundle.builds[0]
            # Callers have checked their arrays against these, and wait for outputs of these shapes.
            for side in ("inputs", "outputs"):
                specs, successor_specs = getattr(plan, side), getattr(successor.plan, side)
                if specs != successor_specs:
                    raise PlanError(
                        f"the new bundle has other {side}: {_join(successor_specs)} instead of {_join(specs)}"
                    )
            check_codes(successor.plan, successor.codes)
            predecessor = self._engine.deployment
            self._bring(bundle.builds, bundle.shapes, timeout)
        if grace is not None:
            self._engine.give_up(predecessor, grace)

    def _bring(self, builds: Sequence[Build], shapes: OpenShapes | None, timeout: float | None = None) -> None:
        if self._engine.closing:  # before devices are opened for nothing
            raise self._engine.closed_error()
        engine = self._engine
        engine.swap(engine.open(builds, shapes) if timeout is None else self._open_in_time(builds, shapes, timeout))
        # Only after the swap: if that fails, the stages are still those that builds are made from.
        self._pending_builds.forget()

    def _open_in_time(self, builds: Sequence[Build], shapes: OpenShapes | None, timeout: float) -> Deployment:
        engine = self._engine
        try:
            return call_in_time(
                lambda: engine.open(builds, shapes),
                "opening the devices",
                limit_s=timeout,
                ends=lambda: engine.closing,
                discard=Deployment.shut,
            )
        except TimeoutError as error:
            raise (engine.closed_error() if engine.closing else PipelineError(str(error))) from None


def check_codes(plan: Plan, codes: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return one code per plan unit, or raise `PlanError`."""
    if codes is None:
        return (None,) * len(plan.units)
    if len(codes) != len(plan.units):
        raise PlanError(f"{len(codes)} codes were given for {len(plan.units)} stages or steps; give one for each")
    return tuple(codes)


def _replace_parameters(build: Build, number: int, values: Mapping[str, Any]) -> Build:
    """Return the build with replaced parameters in a stage."""
    code = build.codes[number]
    # A stage without code, on a device that computes nothing, has no parameters.
    arrays = _check_values(build.plan.units[number].name, getattr(code, "parameters", {}), values)
    successor = code.with_parameters(arrays)
    return replace(build, codes=(*build.codes[:number], successor, *build.codes[number + 1 :]))


def _check_values(stage: str, parameters: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return copies of values, checked against the parameters."""
    arrays = {}
    for name, value in values.items():
        if name not in parameters:
            names = ", ".join(parameters) or "none"
            raise InputError(f"stage {stage!r} has no parameter {name!r}; it has {names}{near(name, parameters)}")
        array, current = read_array("parameter", name, value), parameters[name]
        if (array.dtype, array.shape) != (current.dtype, current.shape):
            raise InputError(
                f"parameter {name!r} of stage {stage!r}: {array.dtype}{list(array.shape)} given, "
                f"{current.dtype}{list(current.shape)} expected"
            )
        arrays[name] = snapshot(array)
    return arrays


def _join(specs: Sequence[Any]) -> str:
    return ", ".join(map(str, specs))
