"""Frames through stages: the running pipeline."""

from pipeline.scheduler.frame import FrameFuture
from pipeline.scheduler.pipeline import Pipeline
from pipeline.scheduler.statistics import Percentiles, StageStatistics, Statistics
from pipeline.scheduler.trace import Event, Trace

__all__ = ["Event", "FrameFuture", "Percentiles", "Pipeline", "StageStatistics", "Statistics", "Trace"]
