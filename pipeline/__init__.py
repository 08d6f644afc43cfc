"""soc-pipeline: neural networks cut into stages, each built for its own processor."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from pipeline.system.distribution import check_names

if TYPE_CHECKING:
    from pipeline.app.application import App
    from pipeline.app.load_app import load_app
    from pipeline.app.running_app import RunningApp
    from pipeline.core.board.board import Board, Device, Link
    from pipeline.core.model_card import ModelCard
    from pipeline.core.plan.plan import Plan, StagePlan, StepPlan, TensorSpec
    from pipeline.executor.bundle import Bundle
    from pipeline.io.result_stream import ResultStream, stream
    from pipeline.io.results import Classes, Detections, Mask, Text
    from pipeline.io.source_frame import StreamFrame
    from pipeline.scheduler.pipeline import Pipeline
    from pipeline.scheduler.trace import Trace
    from pipeline.workflow.build import build
    from pipeline.workflow.chain import chain
    from pipeline.workflow.export_stages import ExportedStages, export_stages
    from pipeline.workflow.load import load
    from pipeline.workflow.plan import plan
    from pipeline.workflow.read import read
    from pipeline.workflow.tune import tune
    from pipeline.workflow.verify import Verification, verify

PROJECT = "soc-pipeline"

# Another project's `boards` would be met much later, and by errors that name nothing.
check_names()

# Loaded on first use: a board that runs a bundle never imports the compiler or a frontend.
_HOMES = {
    "App": "pipeline.app.application",
    "Board": "pipeline.core.board.board",
    "Bundle": "pipeline.executor.bundle",
    "Classes": "pipeline.io.results",
    "Detections": "pipeline.io.results",
    "Device": "pipeline.core.board.board",
    "ExportedStages": "pipeline.workflow.export_stages",
    "Link": "pipeline.core.board.board",
    "Mask": "pipeline.io.results",
    "ModelCard": "pipeline.core.model_card",
    "Pipeline": "pipeline.scheduler.pipeline",
    "Plan": "pipeline.core.plan.plan",
    "ResultStream": "pipeline.io.result_stream",
    "RunningApp": "pipeline.app.running_app",
    "StagePlan": "pipeline.core.plan.plan",
    "StepPlan": "pipeline.core.plan.plan",
    "StreamFrame": "pipeline.io.source_frame",
    "TensorSpec": "pipeline.core.plan.plan",
    "Text": "pipeline.io.results",
    "Trace": "pipeline.scheduler.trace",
    "Verification": "pipeline.workflow.verify",
    "build": "pipeline.workflow.build",
    "chain": "pipeline.workflow.chain",
    "export_stages": "pipeline.workflow.export_stages",
    "load": "pipeline.workflow.load",
    "load_app": "pipeline.app.load_app",
    "plan": "pipeline.workflow.plan",
    "read": "pipeline.workflow.read",
    "stream": "pipeline.io.result_stream",
    "tune": "pipeline.workflow.tune",
    "verify": "pipeline.workflow.verify",
}

__all__ = [
    "App",
    "Board",
    "Bundle",
    "Classes",
    "Detections",
    "Device",
    "ExportedStages",
    "Link",
    "Mask",
    "ModelCard",
    "Pipeline",
    "Plan",
    "ResultStream",
    "RunningApp",
    "StagePlan",
    "StepPlan",
    "StreamFrame",
    "TensorSpec",
    "Text",
    "Trace",
    "Verification",
    "build",
    "chain",
    "export_stages",
    "load",
    "load_app",
    "plan",
    "read",
    "stream",
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
