"""Frames through stages: the running pipeline."""

from pipeline.scheduler.admission import Admission
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics
from pipeline.scheduler.supervision import Supervision
from pipeline.scheduler.trace import Event, Trace

__all__ = [
    "Admission",
    "Event",
    "FrameFuture",
    "Percentiles",
    "Pipeline",
    "StageStatistics",
    "Statistics",
    "Supervision",
    "Trace",
]
