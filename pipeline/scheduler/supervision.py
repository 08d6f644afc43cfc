"""Supervision: what happens to a pipeline whose stages fail or hang."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.errors import near


@dataclass(frozen=True)
class Supervision:
    """Chosen once, when a pipeline starts.

    Attributes
    ----------
    on_error : str
        ``"skip"``: a failed frame ends alone.  ``"stop"``: the first failed frame ends the pipeline: those before it
        are finished, those behind it are cancelled or fail.
    timeouts : float or mapping of str to float
        Seconds that a stage may run on one frame, for all stages or by name; the stages left out have no limit.
    on_timeout : str
        ``"fail-frame"``: the frame fails, and the stage goes on with a new worker and a newly opened device.
        ``"fail-pipeline"``: all frames fail.

    Raises
    ------
    ValueError
        If an option is unknown, or a limit is not a time.
    """

    on_error: str = "skip"
    timeouts: float | Mapping[str, float] = field(default_factory=dict)
    on_timeout: str = "fail-frame"

    def __post_init__(self) -> None:
        _one_of("on_error", self.on_error, ("skip", "stop"))
        _one_of("on_timeout", self.on_timeout, ("fail-frame", "fail-pipeline"))
        limits = self.timeouts.values() if isinstance(self.timeouts, Mapping) else (self.timeouts,)
        if wrong := [limit for limit in limits if not limit > 0]:
            raise ValueError(f"a stage's limit is {wrong[0]} s; it must be a time above 0")

    @property
    def limited(self) -> bool:
        """Whether any stage has a limit."""
        return bool(self.timeouts)

    def limit(self, stage: str) -> float:
        """Return the seconds that a stage may run on one frame, 0 if it has no limit."""
        return self.timeouts.get(stage, 0.0) if isinstance(self.timeouts, Mapping) else self.timeouts

    def check(self, stages: Iterable[str]) -> None:
        """Raise `ValueError` if there is a limit for a stage that does not exist."""
        names = list(stages)
        for name in self.timeouts if isinstance(self.timeouts, Mapping) else ():
            if name not in names:
                raise ValueError(f"a limit for the stage {name!r}; there are {', '.join(names)}{near(name, names)}")


def _one_of(option: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise ValueError(f"{option} is {value!r}; it must be {' or '.join(map(repr, known))}")
