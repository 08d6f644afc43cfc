"""Options of a pipeline, fixed at its start."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypedDict

from pipeline.core import arguments
from pipeline.core.board.board import Device
from pipeline.core.shapes import Build, OpenShapes
from pipeline.errors import ArgumentError, near
from pipeline.executor import devices
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.trace import Trace

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True)
class Supervision:
    """Reaction to failing or hanging stages.

    Raises `ArgumentError` if an option is unknown, or a limit is not a time.
    """

    on_error: str = "skip"
    """``"skip"``: a failed frame ends alone. ``"stop"``: the first failed frame ends the pipeline: those before it are
    finished, those behind it are cancelled or fail."""
    timeouts: float | Mapping[str, float] = field(default_factory=dict)
    """Seconds that a stage may run on one frame, for all stages or by name; the stages left out have no limit."""
    on_timeout: str = "fail-frame"
    """``"fail-frame"``: the frame fails, and the stage goes on with a new worker and a newly opened device.
    ``"fail-pipeline"``: all frames fail."""

    def __post_init__(self) -> None:
        arguments.choice("on_error", self.on_error, ("skip", "stop"))
        arguments.choice("on_timeout", self.on_timeout, ("fail-frame", "fail-pipeline"))
        if isinstance(self.timeouts, Mapping):
            for name, limit in self.timeouts.items():
                arguments.duration(f"stage_timeout[{name!r}]", limit)
        else:
            arguments.duration("stage_timeout", self.timeouts)

    @property
    def limited(self) -> bool:
        """True if any stage has a limit."""
        return bool(self.timeouts)

    def limit(self, stage: str) -> float:
        """Return a stage's time limit in seconds, 0 for none."""
        timeout = self.timeouts.get(stage, math.inf) if isinstance(self.timeouts, Mapping) else self.timeouts
        # Infinity is a valid limit, and means none: the watchdog would only carry a run that never expires.
        limit = arguments.duration("stage_timeout", timeout)
        return 0.0 if limit == math.inf else limit

    def check(self, stages: Iterable[str]) -> None:
        """Raise `ArgumentError` for limits of unknown stages."""
        # A misspelt stage would go without its limit, which nobody would notice until it hangs.
        names = list(stages)
        for name in self.timeouts if isinstance(self.timeouts, Mapping) else ():
            if name not in names:
                raise ArgumentError(f"a limit for the stage {name!r}; there are {', '.join(names)}{near(name, names)}")


class PipelineKeywords(TypedDict, total=False):
    """Keyword arguments of `Pipeline`, and of whatever loads one."""

    create: Callable[[Device], DeviceRuntime]
    trace: Trace | None
    admission: Admission | str
    waiting: int
    deadline: float
    supervision: Supervision
    on_error: str
    stage_timeout: float | Mapping[str, float] | None
    on_timeout: str
    switch_interval: float | None
    shapes: OpenShapes | None
    more: Sequence[Build]
    checksum: str


@dataclass(frozen=True)
class PipelineOptions:
    """Options of a pipeline, packed once."""

    create: Callable[[Device], DeviceRuntime]
    admission: Admission
    """Policy for frames that find no room."""
    supervision: Supervision
    """Treatment of stages that fail or hang."""
    trace: Trace | None = None

    @staticmethod
    def of(**keywords: Unpack[PipelineKeywords]) -> PipelineOptions:
        """Pack the keyword arguments of a pipeline, or raise `ArgumentError`."""
        create, trace = keywords.get("create", devices.create), keywords.get("trace")
        return PipelineOptions(create, _admission(keywords), _supervision(keywords), trace)


def _admission(keywords: PipelineKeywords) -> Admission:
    policy = keywords.get("admission", "block")
    if not isinstance(policy, Admission):
        return Admission(policy, keywords.get("waiting", 0), keywords.get("deadline", math.inf))
    _refuse_beside("admission", keywords.keys() & {"waiting", "deadline"})
    return policy


def _supervision(keywords: PipelineKeywords) -> Supervision:
    if "supervision" in keywords:
        _refuse_beside("supervision", keywords.keys() & {"on_error", "stage_timeout", "on_timeout"})
        return keywords["supervision"]
    timeouts = keywords.get("stage_timeout")
    on_error, on_timeout = keywords.get("on_error", "skip"), keywords.get("on_timeout", "fail-frame")
    return Supervision(on_error, {} if timeouts is None else timeouts, on_timeout)


def _refuse_beside(name: str, others: Collection[str]) -> None:
    if others:
        raise ArgumentError(f"{name} has {' and '.join(sorted(others))} in it already; give one of the two")
