"""After a restart runs what ran: a record in the folder of versions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from pipeline.workflow.update_checks import UpdateOptions
from pipeline.workflow.update_record import RECORD, UpdateRecord
from pipeline.workflow.updates import Updater
from tests.support.updates import SECONDS, Feeder, await_counts, bundle


@pytest.fixture
def base(tmp_path: Path) -> Path:
    bundle().save(tmp_path / "base")
    (tmp_path / "versions").mkdir()
    return tmp_path / "base"


def seconds(record: UpdateRecord) -> float:
    """Tell bundles apart."""
    return record.load(Bundle.load).plan.stages[0].seconds


def test_what_came_to_stay_is_recorded(base: Path) -> None:
    folder, first = base.parent / "versions", Bundle.load(base)
    record = UpdateRecord(folder, base)
    with Pipeline(first.plan, first.codes) as running, Feeder(running):
        options = UpdateOptions(shadow=1, guard=3, most_slower=50)
        with Updater(running, first, folder, Bundle.load, options, record=record.note, interval_s=0.02) as updater:
            bundle(1e-3).save(folder / "v2")
            await_counts(updater, 1)
            (folder / "v3").mkdir()
            (folder / "v3" / "manifest.json").write_text("damaged")
            await_counts(updater, 2)
    assert running.submit is not None
    assert seconds(UpdateRecord(folder, base)) == 1e-3


def test_without_a_record_the_bundle_itself_runs(base: Path) -> None:
    assert seconds(UpdateRecord(base.parent / "versions", base)) == SECONDS


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"bundle": 1, "version": "../base", "checksum": null}'])
def test_a_damaged_record_is_none(base: Path, content: str) -> None:
    (base.parent / "versions" / RECORD).write_text(content)
    assert seconds(UpdateRecord(base.parent / "versions", base)) == SECONDS


def test_another_bundle_makes_the_record_void(base: Path) -> None:
    folder = base.parent / "versions"
    bundle(1e-3).save(folder / "v2")
    UpdateRecord(folder, base).note(folder / "v2")
    assert seconds(UpdateRecord(folder, base)) == 1e-3
    bundle(5e-3).save(base)
    assert seconds(UpdateRecord(folder, base)) == 5e-3


@pytest.mark.parametrize("change", ["replaced", "damaged", "gone"])
def test_a_version_that_is_another_one_by_now_does_not_run(
    base: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = base.parent / "versions"
    bundle(1e-3).save(folder / "v2")
    UpdateRecord(folder, base).note(folder / "v2")
    if change == "replaced":
        bundle(4e-3).save(folder / "v2")
    elif change == "damaged":
        (folder / "v2" / "manifest.sha256").write_text("0  manifest.json")
    else:
        (folder / "v2").rename(base.parent / "elsewhere")
    assert seconds(UpdateRecord(folder, base)) == SECONDS
    assert ("'v2' ran last, and cannot be loaded" in caplog.text) == (change == "damaged")


def test_a_folder_that_cannot_be_written_to_costs_a_warning(base: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = base.parent / "versions"
    bundle().save(folder / "v2")
    (folder / RECORD).mkdir()
    UpdateRecord(folder, base).note(folder / "v2")
    assert "a restart will not run version 'v2'" in caplog.text
    assert json.loads((base / "manifest.json").read_text())
    np.testing.assert_equal(seconds(UpdateRecord(folder, base)), SECONDS)
