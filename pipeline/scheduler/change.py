"""Changes to a running pipeline: other parameters, another bundle; in order, at a frame boundary.

The workers for the new code are started and loaded beside those at work.  Then, at once, new frames go to the new
workers; frames that are in stay where they are, and their workers end after the last of them.  So every frame meets
one bundle only, and if the new one cannot be loaded nothing has changed.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from pipeline.errors import InputError, PlanError, near
from pipeline.plans import Plan
from pipeline.scheduler.copies import snapshot
from pipeline.sizes import Build, OpenShapes

if TYPE_CHECKING:
    from pipeline.scheduler.engine import Engine
    from pipeline.scheduler.newcomers import Newcomers


class Built(Protocol):
    """What a bundle has."""

    @property
    def builds(self) -> Sequence[Build]:
        """The stages, for each size of frames."""

    @property
    def shapes(self) -> OpenShapes | None:
        """What varies between them."""


class Changes:
    """Adds the calls to `Pipeline`; they are safe from any thread and from callbacks, and do not wait for frames."""

    _engine: Engine
    _newcomers: Newcomers

    def __init__(self) -> None:
        super().__init__()
        self._changing = threading.Lock()

    def set_params(self, group: str, values: Mapping[str, Any]) -> None:
        """Give a stage other parameters, for all frames submitted after the call.

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
        with self._changing:
            flow = self._engine.flow
            names = [stage.name for stage in flow.plan.stages]
            if group not in names:
                raise InputError(f"no stage is called {group!r}; there are {', '.join(names)}{near(group, names)}")
            number = names.index(group)
            builds = [_with_parameters(build, number, values) for build in flow.builds]
            self._engine.swap(self._engine.open(builds, flow.shapes))
            self._newcomers.forget()

    def swap(self, bundle: Built) -> None:
        """Run another bundle, for all frames submitted after the call.

        Parameters
        ----------
        bundle : Bundle
            Its inputs and outputs are those of the bundle that it replaces; its stages may be others.

        Raises
        ------
        PlanError
            If it has other inputs or outputs; nothing is changed then.
        PipelineError
            If it cannot be loaded; nothing is changed then.
        PipelineClosed
            If the pipeline is closed.
        """
        with self._changing:
            plan, fresh = self._engine.flow.plan, bundle.builds[0]
            for what in ("inputs", "outputs"):
                old, new = getattr(plan, what), getattr(fresh.plan, what)
                if old != new:
                    raise PlanError(f"the new bundle has other {what}: {_listed(new)} instead of {_listed(old)}")
            checked_codes(fresh.plan, fresh.codes)
            self._engine.swap(self._engine.open(bundle.builds, bundle.shapes))
            self._newcomers.forget()


def checked_codes(plan: Plan, codes: Sequence[Any] | None) -> tuple[Any, ...]:
    """Return a code for each stage, or raise `PlanError` if there are more or less."""
    if codes is None:
        return (None,) * len(plan.stages)
    if len(codes) != len(plan.stages):
        raise PlanError(f"{len(codes)} codes were given for {len(plan.stages)} stages; give one for each")
    return tuple(codes)


def _with_parameters(build: Build, number: int, values: Mapping[str, Any]) -> Build:
    """Return the build with other values for parameters of one stage."""
    code = build.codes[number]
    checked = _checked_values(build.plan.stages[number].name, getattr(code, "parameters", {}), values)
    fresh = code.with_parameters(checked)
    return replace(build, codes=(*build.codes[:number], fresh, *build.codes[number + 1 :]))


def _checked_values(group: str, known: Mapping[str, np.ndarray], values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    checked = {}
    for name, value in values.items():
        if name not in known:
            raise InputError(
                f"stage {group!r} has no parameter {name!r}; it has {', '.join(known) or 'none'}{near(name, known)}"
            )
        array, old = np.asarray(value), known[name]
        if (array.dtype, array.shape) != (old.dtype, old.shape):
            raise InputError(
                f"parameter {name!r} of stage {group!r}: {array.dtype}{list(array.shape)} given, "
                f"{old.dtype}{list(old.shape)} expected"
            )
        checked[name] = snapshot(array)
    return checked


def _listed(specs: Sequence[Any]) -> str:
    return ", ".join(map(str, specs))
