"""``tune`` searches and keeps, ``build`` uses; a mistake is one line."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline import cli
from pipeline.commands import tune
from pipeline.executor.tuning.bench import TrialBench, TrialTimes
from pipeline.executor.tuning.database import Database
from pipeline.executor.tuning.tasks import Task
from tests.support.onnx_models import node, save, weights

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def tuned_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    nodes = [
        node("Conv", "x w", "c", "first", pads=[1] * 4),
        node("Resize", "c - s", "u", "up", mode="cubic"),
        node("Sin", "u", "y", "sine"),
    ]
    constants = {"w": weights(4, 4, 3, 3), "s": np.array([1, 1, 2, 2], np.float32)}
    return save(tmp_path_factory.mktemp("model") / "up.onnx", nodes, {"x": (1, 4, 16, 16)}, ["y"], constants)


@pytest.fixture
def model(tuned_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copy(tuned_model, tmp_path / "up.onnx"))


class FasterBench:
    """Finds each candidate twice as fast as its rule."""

    def alone(self, task: Task, candidate: Any) -> TrialTimes | None:
        return TrialTimes(1.0, 0.5)

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[TrialTimes | None]:
        return [TrialTimes(1.0, 0.5)] * len(tasks)


class InterruptedBench(FasterBench):
    """Is interrupted in the middle of a trial."""

    def in_stage(self, tasks: Sequence[Task], database: Database) -> list[TrialTimes | None]:
        raise KeyboardInterrupt


def search(bench: TrialBench, *arguments: object) -> int:
    """Run ``soc-pipeline tune`` with this bench."""
    return tune.run(cli.parser().parse_args(["tune", *map(str, arguments)]), bench)


def test_tune_and_build(command: Any, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, database, bundle = tmp_path / "plan.json", tmp_path / "up.onnx.tuning.json", tmp_path / "up.bundle"
    command("plan", model, "--stages", 1, "-o", plan)
    assert search(FasterBench(), model, "--plan", plan, "--trials", 1) == 0
    text = capsys.readouterr().out
    for expected in ("resize2d", "2.00 times as fast", f"Tuning: {database}"):
        assert expected in text
    result = command("build", model, "--plan", plan, "-o", bundle)
    assert (result.status, result.err) == (0, "")
    assert f"Tuned kernels: 1, of {database}" in result.out
    assert "no kernel of" not in result.out
    for options in (["--no-tuning"], ["--tuning", tmp_path / "other.json"]):
        shutil.copy(database, tmp_path / "other.json")
        result = command("build", model, "--plan", plan, "-o", bundle, "--json", *options)
        assert json.loads(result.out)["tuned_kernels"] == len(options) - 1
    # A bundle serves as the plan that it was built from.
    assert search(FasterBench(), model, "--plan", bundle, "--trials", 1, "--json") == 0
    assert [each["trials"] for each in json.loads(capsys.readouterr().out)["kernels"] if each["used"]] == [2]


def test_with_real_measurements(command: Any, model: Path, tmp_path: Path) -> None:
    result = command("tune", model, "--stages", 1, "--trials", 1, "--database", tmp_path / "own.json", "--json")
    assert (result.status, result.err) == (0, "")
    assert sum(each["trials"] for each in json.loads(result.out)["kernels"]) == 1
    assert (tmp_path / "own.json").exists()


def test_an_interruption_says_how_to_go_on(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(KeyboardInterrupt):
        search(InterruptedBench(), model, "--stages", 1, "--trials", 1)
    assert "up.onnx.tuning.json; the same command goes on from there" in capsys.readouterr().err
    assert search(FasterBench(), model, "--stages", 1, "--seconds", "0.000001", "--json") == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert {(kernel["trials"], kernel["used"]) for kernel in kernels} >= {(1, True)}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--trials", "0"], "--trials is '0'"),
        (["--seconds", "soon"], "--seconds is 'soon'; it must be a number above 0"),
        (["--seconds", "-1"], "--seconds is '-1'"),
        (["--plan", "plan.json", "--stages", "2"], "--plan already says where to cut"),
    ],
)
def test_wrong_options(command: Any, model: Path, arguments: list[str], message: str) -> None:
    result = command("tune", model, *arguments)
    assert (result.status, result.out) == (2, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_damaged_database(command: Any, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "up.onnx.tuning.json"
    path.write_text("{")
    for arguments in (["tune", model, "--stages", 1], ["build", model, "-o", tmp_path / "up.bundle"]):
        result = command(*arguments)
        assert (result.status, result.out) == (2, "")
        assert f"'{path}' is not a tuning database" in result.err
        assert result.err.count("\n") == 1
    assert path.read_text() == "{"
    assert sorted(tmp_path.iterdir()) == [model, path]


def test_a_bundle_has_nothing_to_tune(command: Any, tmp_path: Path) -> None:
    result = command("tune", tmp_path)
    assert result.status == 2
    assert f"soc-pipeline tune MODEL --plan {tmp_path}" in result.err


def test_no_folder_for_the_database(command: Any, model: Path, tmp_path: Path) -> None:
    result = command("tune", model, "--stages", 1, "--trials", 1, "--database", tmp_path / "missing" / "own.json")
    assert (result.status, result.out) == (2, "")
    assert "there is no folder" in result.err
