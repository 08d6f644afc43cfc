"""Sampling for tests that need some measured time, and not an exact one."""

from __future__ import annotations

from pipeline.measure.sampling import Sampling

QUICK = Sampling(rounds=2, turn_s=0.0, stream_s=0.0)
