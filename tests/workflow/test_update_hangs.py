"""New versions that hang, or take for ever to open: the good one goes on, and the end comes soon."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.errors import PipelineError
from pipeline.executor.bundle import Bundle
from pipeline.executor.devices.simulated import SimulatedRuntime
from pipeline.scheduler import Pipeline
from pipeline.workflow.update_checks import UpdateOptions
from pipeline.workflow.updates import UpdateCounts, Updater
from tests.support.updates import LIMIT, Feeder, await_counts, bundle, registered

# A device that hangs is not waited for.
pytestmark = [
    pytest.mark.filterwarnings("ignore:stages that are still busy:ResourceWarning"),
    pytest.mark.timeout(120),
]
hanging = threading.Event()


class HangingRuntime(SimulatedRuntime):
    """Hangs on every frame, until the test ends."""

    def run(self, program: Any, inputs: Sequence[Any]) -> Sequence[Any]:
        hanging.wait(LIMIT)
        return super().run(program, inputs)


class ClosedRuntime(SimulatedRuntime):
    """Hangs when it is opened."""

    def open(self, cores: Sequence[int]) -> None:
        hanging.wait(LIMIT)
        super().open(cores)


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    hanging.clear()
    with registered("hanging", HangingRuntime), registered("closed", ClosedRuntime):
        yield
        hanging.set()


QUICK = UpdateOptions(guard=5, most_slower=50, patience_s=0.3, opening_s=0.2, grace_s=0.2)


@pytest.mark.parametrize(
    ("kind", "options", "counts", "reason"),
    [
        ("hanging", QUICK, UpdateCounts(rolled_back=1), "where they may"),
        ("hanging", QUICK._replace(shadow=2), UpdateCounts(refused=1), "a frame takes more than 0.3 s"),
        ("closed", QUICK, UpdateCounts(refused=1), "opening the devices takes more than 0.2 s"),
        ("closed", QUICK._replace(shadow=2), UpdateCounts(refused=1), "opening its devices takes more than 0.2 s"),
    ],
)
def test_a_version_that_hangs_is_taken_back(  # noqa: PLR0917 - fixtures and cases
    tmp_path: Path, kind: str, options: UpdateOptions, counts: UpdateCounts, reason: str, caplog: Any
) -> None:
    first = bundle()
    with Pipeline(first.plan, first.codes) as running, Feeder(running) as feeder:
        with Updater(running, first, tmp_path, Bundle.load, options, interval_s=0.02) as updater:
            bundle(kind=kind).save(tmp_path / "v2")
            await_counts(updater, 1)
            assert updater.counts == counts
            # The next version is judged as if nothing had been.
            bundle().save(tmp_path / "v3")
            await_counts(updater, 2)
            assert updater.counts.applied == 1
        assert running.submit(np.zeros(4, np.float32)).exception(LIMIT) is None
    assert reason in caplog.text
    failures = [future.exception() for future in feeder.futures if future.exception()]
    assert bool(failures) == (counts.rolled_back == 1)
    assert all(isinstance(error, PipelineError) and "was taken back" in str(error) for error in failures)
    statistics = running.statistics()
    assert statistics.delivered + statistics.failed + statistics.cancelled == statistics.submitted


@pytest.mark.parametrize("options", [UpdateOptions(), UpdateOptions(shadow=2)], ids=["guard", "shadow"])
@pytest.mark.parametrize("kind", ["hanging", "closed"])
def test_the_end_does_not_wait_for_a_version_that_hangs(tmp_path: Path, kind: str, options: UpdateOptions) -> None:
    first = bundle()
    with pytest.raises(KeyboardInterrupt), Pipeline(first.plan, first.codes) as running:
        for _ in range(3):
            running.submit(np.zeros(4, np.float32)).result(LIMIT)
        with Updater(running, first, tmp_path, Bundle.load, options, interval_s=0.02) as updater:
            begun = threading.Event()
            running.observe(lambda *_: begun.set())
            bundle(kind=kind).save(tmp_path / "v2")
            time.sleep(0.3)
            running.submit(np.zeros(4, np.float32))
            time.sleep(0.2)
            raise KeyboardInterrupt
    assert updater.counts == UpdateCounts()


def test_callers_that_wait_for_a_version_that_hangs_are_served() -> None:
    first = bundle()
    with Pipeline(first.plan, first.codes) as running:
        running.swap(bundle(kind="hanging"))
        outcomes: list[Any] = []

        def submit() -> None:
            outcomes.append(running.submit(np.zeros(4, np.float32)).exception(LIMIT))

        threads = [threading.Thread(target=submit) for _ in range(first.plan.frames_in_flight + 3)]
        for thread in threads:
            thread.start()
        while running.statistics().blocked_callers < 3:
            time.sleep(0.001)
        running.swap(first, grace=0.0)
        for thread in threads:
            thread.join(LIMIT)
        assert len(outcomes) == len(threads)
        assert outcomes.count(None) == 3
        assert running.submit(np.ones(4, np.float32)).result(LIMIT)[0] == 1


def test_frames_of_the_bundle_before_may_end_in_their_time() -> None:
    slow = bundle(0.05)
    with Pipeline(slow.plan, slow.codes) as running:
        future = running.submit(np.ones(4, np.float32))
        running.swap(bundle(), grace=LIMIT)
        assert future.done()
        assert future.exception() is None
