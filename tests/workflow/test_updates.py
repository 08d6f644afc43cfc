"""New versions of a bundle while frames stream: good ones take over, bad ones do no harm."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from pipeline.core.plan.plan import TensorSpec
from pipeline.errors import PipelineError
from pipeline.executor.bundle import Bundle
from pipeline.scheduler import Pipeline
from pipeline.workflow.update_checks import UpdateOptions
from pipeline.workflow.updates import UpdateCounts, Updater
from tests.support.system_tools import SIGNATURES
from tests.support.updates import LIMIT, DoublingRuntime, FailingRuntime, Feeder, await_counts, bundle, registered


@pytest.fixture(autouse=True)
def failing_kind() -> Iterator[None]:
    with registered("failing", FailingRuntime):
        yield


@pytest.mark.parametrize(
    ("successor", "options", "counts", "reason"),
    [
        (bundle(), UpdateOptions(guard=5, most_slower=50), UpdateCounts(applied=1), "is at work"),
        (bundle(), UpdateOptions(shadow=5, guard=5, most_slower=50), UpdateCounts(applied=1), "is at work"),
        (bundle(0.2), UpdateOptions(guard=5, most_slower=20), UpdateCounts(rolled_back=1), "times as long as those"),
        (bundle(kind="failing"), UpdateOptions(guard=5), UpdateCounts(rolled_back=1), "a fault of this version"),
        (bundle(kind="failing"), UpdateOptions(shadow=3), UpdateCounts(refused=1), "a fault of this version"),
        (bundle(spec=TensorSpec("x", (5,))), UpdateOptions(), UpdateCounts(refused=1), "has other inputs"),
    ],
)
def test_what_becomes_of_a_version(  # noqa: PLR0917 - fixtures and cases
    tmp_path: Path,
    successor: Bundle,
    options: UpdateOptions,
    counts: UpdateCounts,
    reason: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = bundle()
    with Pipeline(first.plan, first.codes) as running, Feeder(running) as feeder:
        with Updater(running, first, tmp_path, Bundle.load, options, interval_s=0.02) as updater:
            successor.save(tmp_path / "v2")
            await_counts(updater, 1)
            assert updater.counts == counts
        # Whatever it was, frames are delivered again.
        last = running.submit(np.zeros(4, np.float32))
        assert last.exception(LIMIT) is None
    failures = feeder.failures()
    assert (failures > 0) == ("a fault" in reason and not options.shadow)
    assert reason in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(("tolerance", "counts"), [(None, UpdateCounts(applied=1)), (1e-3, UpdateCounts(refused=1))])
def test_outputs_that_differ_are_refused_if_a_tolerance_says_so(
    tmp_path: Path, tolerance: float | None, counts: UpdateCounts, caplog: pytest.LogCaptureFixture
) -> None:
    first = bundle()
    options = UpdateOptions(shadow=2, tolerance=tolerance, guard=3, most_slower=50)
    with (
        registered("doubling", DoublingRuntime),
        Pipeline(first.plan, first.codes) as running,
        Feeder(running, first=1),
        Updater(running, first, tmp_path, Bundle.load, options, interval_s=0.02) as updater,
    ):
        bundle(kind="doubling").save(tmp_path / "v2")
        await_counts(updater, 1)
        assert updater.counts == counts
    assert ("its outputs differ by 1 of the largest one" in caplog.text) == (tolerance is not None)


def test_a_version_is_taken_when_it_is_complete(tmp_path: Path) -> None:
    first = bundle()
    staging = tmp_path / "staging"
    bundle().save(staging)
    folder = tmp_path / "versions"
    folder.mkdir()
    with Pipeline(first.plan, first.codes) as running, Feeder(running):
        options = UpdateOptions(guard=3, most_slower=50)
        with Updater(running, first, folder, Bundle.load, options, interval_s=0.02) as updater:
            (folder / "v2").mkdir()
            time.sleep(0.1)
            assert updater.counts == UpdateCounts()
            for name in ("manifest.sha256", "manifest.json"):
                shutil.copy(staging / name, folder / "v2" / name)
            await_counts(updater, 1)
            assert updater.counts.applied == 1
            # The same name again, with other content.
            bundle(1e-3).save(folder / "v2")
            await_counts(updater, 2)


def test_versions_that_are_there_already_are_not_taken(tmp_path: Path) -> None:
    first = bundle()
    first.save(tmp_path / "v1")
    with Pipeline(first.plan, first.codes) as running, Feeder(running):
        with Updater(running, first, tmp_path, Bundle.load, interval_s=0.01) as updater:
            time.sleep(0.2)
        assert updater.counts == UpdateCounts()


def test_a_folder_that_goes_ends_nothing(tmp_path: Path) -> None:
    first = bundle()
    folder = tmp_path / "versions"
    folder.mkdir()
    with Pipeline(first.plan, first.codes) as running, Feeder(running):
        options = UpdateOptions(guard=3, most_slower=50)
        with Updater(running, first, folder, Bundle.load, options, interval_s=0.01) as updater:
            folder.rmdir()
            time.sleep(0.1)
            folder.mkdir()
            first.save(folder / "v2")
            await_counts(updater, 1)
            assert updater.counts.applied == 1


def keys(folder: Path) -> tuple[Path, Path]:
    for name in ("friend", "stranger"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True, timeout=60)
    (folder / "allowed").write_text(f"friend {(folder / 'friend.pub').read_text()}")
    return folder / "friend", folder / "stranger"


@pytest.mark.skipif(bool(SIGNATURES), reason=SIGNATURES)
@pytest.mark.parametrize("count", [15, pytest.param(300, marks=[pytest.mark.slow, pytest.mark.timeout(900)])])
def test_many_updates_of_which_a_fifth_is_bad(tmp_path: Path, count: int) -> None:
    friend, stranger = keys(tmp_path)
    folder, first, rng = tmp_path / "versions", bundle(), random.Random(0)
    folder.mkdir()
    faults = itertools.cycle(["wrong key", "truncated", "wrong shapes", "slower", "raising"])
    bad_numbers = set(rng.sample(range(count), count // 5))

    def load(path: Path) -> Bundle:
        return Bundle.load(path, require_signature=tmp_path / "allowed")

    # Slow enough a fault that no busy machine looks like it.
    options = UpdateOptions(shadow=3, guard=3, most_slower=100)
    with (
        Pipeline(first.plan, first.codes) as running,
        Feeder(running) as feeder,
        Updater(running, first, folder, load, options, interval_s=0.01) as updater,
    ):
        for number in range(count):
            path = folder / f"v{number}"
            fault = next(faults) if number in bad_numbers else ""
            save_version(path, fault, stranger if fault == "wrong key" else friend)
            await_counts(updater, number + 1)
            shutil.rmtree(path)
    assert updater.counts.applied == count - len(bad_numbers)
    assert updater.counts.refused + updater.counts.rolled_back == len(bad_numbers)
    assert updater.counts.rolled_back == len(bad_numbers) // 5
    assert feeder.failures() == 0
    statistics = running.statistics()
    assert statistics.delivered == statistics.submitted == len(feeder.futures)


def save_version(path: Path, fault: str, key: Path) -> None:
    made = {
        "wrong shapes": bundle(spec=TensorSpec("x", (5,))),
        "slower": bundle(1.0),
        "raising": bundle(kind="failing"),
    }.get(fault, bundle())
    made.save(path, sign=key)
    if fault == "truncated":
        data = (path / "manifest.json").read_bytes()
        (path / "manifest.json").write_bytes(data[: len(data) // 2])


@pytest.mark.skipif(bool(SIGNATURES), reason=SIGNATURES)
def test_bundles_with_faults_are_what_they_seem(tmp_path: Path) -> None:
    save_version(tmp_path / "v", "truncated", keys(tmp_path)[0])
    with pytest.raises(PipelineError):
        Bundle.load(tmp_path / "v")
