"""Exceptions of soc-pipeline, raised on purpose.

Each message names the thing that is wrong and the remedy.  The command line turns every one of them
into a single line and the exit status that the class carries.
"""

from __future__ import annotations

from collections.abc import Iterable


class PipelineError(Exception):
    """Base of all errors of this package.

    Attributes
    ----------
    exit_status : int
        Exit status of the command line: 2 for a wrong use, 1 for something that failed.
    """

    exit_status = 1


class ModelError(PipelineError, ValueError):
    """Raised when a model is unreadable: missing file, unknown format, unsupported operator."""

    exit_status = 2


class PlanError(PipelineError, ValueError):
    """Raised when a plan is impossible: unknown cut, too many stages, unconnected tensor."""

    exit_status = 2


class BoardError(PipelineError, ValueError):
    """Raised when a board or device is unknown or ill-described."""

    exit_status = 2


class BuildError(PipelineError, RuntimeError):
    """Raised when a stage cannot be compiled, or results differ from the model."""


class AppError(PipelineError, ValueError):
    """Raised when an application is impossible: unknown name, circular reads, wrong condition."""

    exit_status = 2


class BundleError(PipelineError, ValueError):
    """Raised when a bundle is missing, damaged, too new, or foreign."""

    exit_status = 2


class TuningError(PipelineError, ValueError):
    """Raised when a tuning database is unusable, or nothing can be tuned."""

    exit_status = 2


class InstructionError(PipelineError, ValueError):
    """Raised when a value exceeds its instruction field, or a stream is malformed."""

    exit_status = 2


class ArgumentError(PipelineError, ValueError):
    """Raised when an argument is senseless: negative time, unknown policy."""

    exit_status = 2


class InputError(PipelineError, ValueError):
    """Raised when a frame does not fit: wrong name, dtype, rank or shape."""

    exit_status = 2


class SourceLost(PipelineError, RuntimeError):
    """Raised when a camera or stream ends, falls silent, or disappears."""


class ShadowedPackage(PipelineError, ImportError):
    """Raised when another project's package hides one of this project's names.

    Attributes
    ----------
    package, origin : str
        The name, and what Python finds under it.
    """

    def __init__(self, package: str, origin: str, expected: str) -> None:
        super().__init__(
            f"Python finds {origin} under the name {package!r}, where {expected} is meant; rename the other one, take "
            "its folder from PYTHONPATH, or use an environment of its own (python3 -m venv)"
        )
        self.package, self.origin = package, origin


class MissingExtra(PipelineError, ImportError):
    """Raised when an optional package is missing for a feature."""

    exit_status = 2


class StageError(PipelineError, RuntimeError):
    """Raised from a frame's future when a stage failed on it.

    The error of the device is its ``__cause__``.

    Attributes
    ----------
    stage, device : str
        Stage and device of the failure.
    frame : int
        Sequence number of the frame.
    step : str
        Name of the step, in a stage that has several; else empty.
    """

    def __init__(self, stage: str, device: str, frame: int, cause: BaseException, step: str = "") -> None:
        location = _describe_place(stage, device, step)
        super().__init__(f"{location} failed on frame {frame}: {describe_error(cause)}")
        self.stage, self.device, self.frame, self.step = stage, device, frame, step
        self.__cause__ = cause

    def __reduce__(self) -> tuple[type[StageError], tuple[str, str, int, BaseException | None, str]]:
        """Rebuild from the facts, to cross process borders."""
        return type(self), (self.stage, self.device, self.frame, self.__cause__, self.step)


class StageTimeout(StageError):
    """Raised from a frame's future when a stage exceeded its time limit.

    Attributes
    ----------
    stage, device, frame, step : str, str, int, str
        Stage, device, frame and step of the failure.
    seconds : float
        Seconds that the stage had spent on it.
    """

    def __init__(self, stage: str, device: str, frame: int, seconds: float, step: str = "") -> None:
        location = _describe_place(stage, device, step)
        PipelineError.__init__(self, f"{location} has been running for {seconds:.3g} s on frame {frame}")
        self.stage, self.device, self.frame, self.seconds, self.step = stage, device, frame, seconds, step

    def __reduce__(self) -> tuple[type[StageTimeout], tuple[str, str, int, float, str]]:  # type: ignore[override]
        """Rebuild from the facts, to cross process borders."""
        return type(self), (self.stage, self.device, self.frame, self.seconds, self.step)


def _describe_place(stage: str, device: str, step: str) -> str:
    return f"stage {stage!r}{f' in {step!r}' if step else ''} on device {device!r}"


class DeviceLost(PipelineError, RuntimeError):
    """Raised when a remote device is unreachable, silent, or refuses a stage."""


class RemoteError(PipelineError, RuntimeError):
    """Raised when a stage failed on another machine, with its message."""


class FrameDropped(PipelineError):
    """Raised from the future of a frame dropped by admission or `flush`.

    Attributes
    ----------
    frame : int
        Sequence number of the frame.
    reason : str
        ``"replaced"`` by a newer frame, ``"full"`` (the waiting line was), ``"late"`` (it could not have met its
        deadline any more) or ``"flushed"``.
    """

    def __init__(self, frame: int, reason: str) -> None:
        super().__init__(f"frame {frame} was dropped before it started: {reason}")
        self.frame, self.reason = frame, reason

    def __reduce__(self) -> tuple[type[FrameDropped], tuple[int, str]]:
        """Rebuild from the facts, to cross process borders."""
        return type(self), (self.frame, self.reason)


class PipelineClosed(PipelineError, RuntimeError):
    """Raised when a frame is submitted to, or waits in, a closed pipeline."""


def describe_error(error: BaseException, *, kind: bool = True) -> str:
    """Describe any error by `kind` and text, even if unprintable.

    A device's or a user's exception may have a ``__str__`` that fails; whoever reports it must not fail with it.
    """
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - whatever a stranger's __str__ raises
        text = f"(its text cannot be read: its __str__ raises {type(failure).__name__})"
    return f"{type(error).__name__}: {text}" if kind else text


def reason(error: BaseException, *, line: int = -1) -> str:
    """Return one line of an error's text, or its kind.

    Parameters
    ----------
    error : BaseException
        Error of a library, whose text may have many lines; ours have one.
    line : int
        The last by default: compilers list the calls first, and the cause after them.  Readers of files say the cause
        in the first one (0) and show the context below it.
    """
    lines = describe_error(error, kind=False).strip().splitlines()
    return lines[line].strip() if lines else type(error).__name__


def near(name: str, candidates: Iterable[str], limit: int = 3) -> str:
    """Return ``'; did you mean ...?'`` for similar names, or an empty string."""
    # Late: only a mistake needs it.
    import difflib

    matches = difflib.get_close_matches(name, list(candidates), n=limit, cutoff=0.5)
    return f"; did you mean {' or '.join(repr(match) for match in matches)}?" if matches else ""
