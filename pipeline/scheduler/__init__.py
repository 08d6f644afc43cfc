"""Frames through stages: the running pipeline."""

from pipeline.scheduler.admission import Admission
from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.options import Supervision
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics, StepStatistics
from pipeline.scheduler.trace import Trace, TraceEvent

__all__ = [
    "Admission",
    "FrameFuture",
    "Percentiles",
    "Pipeline",
    "StageStatistics",
    "Statistics",
    "StepStatistics",
    "Supervision",
    "Trace",
    "TraceEvent",
]
