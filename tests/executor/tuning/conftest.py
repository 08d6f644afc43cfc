"""A model as one stage that is to be tuned; each file of tests has a `model` of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

import pipeline
from pipeline.core.plan.plan import Plan
from pipeline.executor.tuning.tasks import Subject
from pipeline.split import extract
from pipeline.split.graph import Graph


@pytest.fixture(scope="module")
def graph(model: Path) -> Graph:
    return pipeline.read(model)


@pytest.fixture(scope="module")
def plan(graph: Graph) -> Plan:
    return pipeline.plan(graph, stages=1)


@pytest.fixture(scope="module")
def subject(graph: Graph, plan: Plan) -> Subject:
    (part,) = extract.parts(graph, [])
    return Subject(plan.stages[0], extract.module(part), plan.board.devices[0])
