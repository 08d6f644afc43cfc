"""Applications on the command line: several sources of one model, and predictions."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support import media

APP = """
[stream.a]
source = "pattern:64x48@30"
[stream.b]
source = "pattern:64x48@10"
fps = 10
[model.pictures]
file = "pictures.bundle"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with a bundle and an application of it."""
    bundle = media.identity((48, 64, 3))
    bundle.save(tmp_path / "pictures.bundle")
    bundle.plan = replace(bundle.plan, stages=tuple(replace(stage, seconds=0.02) for stage in bundle.plan.stages))
    bundle.save(tmp_path / "timed.bundle")
    (tmp_path / "app.toml").write_text(APP)
    return tmp_path


def test_each_source_has_its_own_books_and_sinks(command: Any, folder: Path) -> None:
    sources = ("--source", "pattern:64x48", "--source", "pattern:32x32")
    sinks = ("--sink", folder / "{stream}.jsonl", "--sink", folder / "all.jsonl")
    result = command("run", folder / "pictures.bundle", *sources, *sinks, "--frames", 7, "--json")
    assert result.status == 0, result.err
    books = json.loads(result.out)["streams"]
    assert {name: book["delivered"] for name, book in books.items()} == {"source0": 7, "source1": 7}
    for name in books:
        lines = [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        assert [line["stream"] for line in lines] == [name] * 7
    assert len((folder / "all.jsonl").read_text().splitlines()) == 14


def test_an_application_is_predicted_from_its_plans(command: Any, folder: Path) -> None:
    (folder / "timed.toml").write_text(APP.replace("pictures.bundle", "timed.bundle"))
    result = command("app", "simulate", folder / "timed.toml", "--fps", "a=5")
    assert result.status == 0, result.err
    rows = [line.replace("│", " ").split() for line in result.out.splitlines()]
    assert [row[:2] for row in rows if row and row[0] in ("a", "b")] == [["a", "5"], ["b", "10"]]
    result = command("app", "simulate", folder / "timed.toml", "--runs", "pictures=0.5", "--json")
    assert json.loads(result.out)["models"]["pictures"]["runs"] == 0.5
    result = command("app", "simulate", folder / "app.toml", "--fps", "a=x")
    assert result.status == 2


def test_a_plan_without_times_is_not_simulated(command: Any, folder: Path) -> None:
    result = command("app", "simulate", folder / "app.toml")
    assert result.status != 0
    assert "the plan of 'pictures' has no times" in result.err
