"""soc-pipeline: cut a neural network into stages, build each for its own processor, stream frames through them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.api import build, load, plan, read
    from pipeline.board import Board, Device, Link
    from pipeline.executor.bundle import Bundle
    from pipeline.plans import Plan, StagePlan, TensorSpec
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.trace import Trace
    from pipeline.tuning import tune
    from pipeline.verification import Verification, verify

# Loaded on first use: a board that runs a bundle never imports the compiler or a frontend.
_HOMES = {
    "Board": "pipeline.board",
    "Bundle": "pipeline.executor.bundle",
    "Device": "pipeline.board",
    "Link": "pipeline.board",
    "Pipeline": "pipeline.scheduler.pipeline",
    "Plan": "pipeline.plans",
    "StagePlan": "pipeline.plans",
    "TensorSpec": "pipeline.plans",
    "Trace": "pipeline.scheduler.trace",
    "build": "pipeline.api",
    "load": "pipeline.api",
    "plan": "pipeline.api",
    "read": "pipeline.api",
    "tune": "pipeline.tuning",
    "Verification": "pipeline.verification",
    "verify": "pipeline.verification",
}

__all__ = [
    "Board",
    "Bundle",
    "Device",
    "Link",
    "Pipeline",
    "Plan",
    "StagePlan",
    "TensorSpec",
    "Trace",
    "Verification",
    "build",
    "load",
    "plan",
    "read",
    "tune",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'pipeline' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
