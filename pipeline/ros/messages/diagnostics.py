"""Diagnostics: the condition of a node, as `diagnostic_msgs/DiagnosticArray`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pipeline.ros.bridge import Counts, Header
from pipeline.ros.messages.message_reader import message_header
from pipeline.ros.messages.types import create_message
from pipeline.scheduler.statistics import StageStatistics, Statistics

DIAGNOSTICS = "diagnostic_msgs/msg/DiagnosticArray"
# Levels of diagnostic_msgs/DiagnosticStatus; its fourth, STALE, is set by those who miss messages.
OK, WARN, ERROR = range(3)


@dataclass(frozen=True)
class Condition:
    """Condition of a node, by its work so far."""

    counts: Counts = field(default_factory=Counts)
    statistics: Statistics | None = None
    """Statistics; None before the first message."""
    trouble: str = ""
    """The newest error."""

    @property
    def lost(self) -> int:
        """Messages lost by somebody's fault."""
        failures = self.statistics.failed if self.statistics else 0
        # Dropped frames are none of them: the admission was chosen for that.
        return self.counts.refused + self.counts.unpublished + failures

    @property
    def dropped(self) -> int:
        """Messages dropped by admission, as configured, or in front of it."""
        return self.counts.dropped + (sum(self.statistics.dropped.values()) if self.statistics else 0)

    def judge(self, previous: Condition | None) -> tuple[int, str]:
        """Return level and message, by changes since `previous`."""
        since = previous or Condition(Counts())
        # The worst first: a message that was lost outweighs that none is new.
        if self.lost > since.lost:
            return ERROR, f"{self.lost - since.lost} messages without an answer: {self.trouble}"
        if not self.counts.received:
            return WARN, "waiting for the first message"
        # Not an error: a camera may be switched off on purpose.
        if self.counts.received == since.counts.received:
            return WARN, "no new message"
        if self.dropped > since.dropped:
            return WARN, f"messages come too fast: {self.dropped - since.dropped} dropped"
        return OK, "answering"


def message(name: str, condition: Condition, previous: Condition | None, now: int) -> Any:
    """Return a node's diagnostics: a status for pipeline and stages, at a time in nanoseconds."""
    level, text = condition.judge(previous)
    statuses = [_status(level, f"{name}: pipeline", text, "", _pipeline(condition))]
    if condition.statistics is not None:
        statuses += [_stage(name, stage) for stage in condition.statistics.stages]
    return create_message(DIAGNOSTICS, message_header(Header(now)), statuses)


def _pipeline(condition: Condition) -> dict[str, Any]:
    values: dict[str, Any] = asdict(condition.counts)
    if (statistics := condition.statistics) is not None:
        values |= {name: getattr(statistics, name) for name in ("submitted", "delivered", "failed", "cancelled")}
        values |= {f"dropped, {reason}": count for reason, count in statistics.dropped.items()}
        values |= {"in flight": statistics.in_flight, "frames/s": f"{statistics.frames_per_s:.2f}"}
        values |= {
            f"latency {share} [ms]": f"{getattr(statistics.latency_s, share) * 1e3:.3f}"
            for share in ("p50", "p95", "p99")
        }
    return values


def _stage(name: str, stage: StageStatistics) -> Any:
    values = {
        "frames": stage.frames_out,
        "failed": stage.failed,
        "busy [%]": f"{stage.busy * 100:.1f}",
        "queue": stage.queue_length,
        "run p50 [ms]": f"{stage.run_s.p50 * 1e3:.3f}",
        "restarts": stage.restarts,
    }
    return _status(OK, f"{name}: {stage.name}", f"{stage.frames_out} frames", stage.device, values)


def _status(level: int, name: str, text: str, hardware: str, values: Mapping[str, Any]) -> Any:
    pairs = [create_message("diagnostic_msgs/msg/KeyValue", key, str(value)) for key, value in values.items()]
    return create_message("diagnostic_msgs/msg/DiagnosticStatus", level, name, text, hardware, pairs)
