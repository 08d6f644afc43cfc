"""The trace file, checked against the rules of the Trace Event Format (its document is public, by Google)."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from pipeline.errors import InputError
from pipeline.observe import perfetto
from pipeline.scheduler import Pipeline, Trace
from pipeline.scheduler.trace import TraceEvent
from tests.support.step_plans import alternating_plan

Record = dict[str, Any]
FRAMES = 12


@pytest.fixture(scope="module")
def plan() -> Plan:
    """A stage that feeds two others, of which one has two replicas, and one that joins them."""
    x, a, b, c, d = (TensorSpec(name, (4,)) for name in "xabcd")
    stages = (
        StagePlan("a", "device", (x,), (a,), seconds=0.001),
        StagePlan("b", "device", (a,), (b,), seconds=0.004, replicas=2),
        StagePlan("c", "device", (a,), (c,), seconds=0.002),
        StagePlan("d", "device", (b, c), (d,), seconds=0.001),
    )
    return Plan("diamond", "", Board("board", (Device("device", "simulated"),)), (x,), (d,), stages)


@pytest.fixture(scope="module")
def content(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Record:
    trace = Trace()
    with Pipeline(plan, trace=trace) as running:
        assert len(list(running.map([np.zeros(4, np.float32)] * FRAMES))) == FRAMES
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    perfetto.save(trace.events(), path, model=plan.model, stages=[stage.name for stage in plan.stages])
    assert list(path.parent.iterdir()) == [path]
    loaded: Record = json.loads(path.read_text())
    return loaded


@pytest.fixture(scope="module")
def records(content: Record) -> list[Record]:
    trace_events: list[Record] = content["traceEvents"]
    return trace_events


def slices(records: list[Record]) -> list[Record]:
    return sorted((record for record in records if record["ph"] == "X"), key=lambda record: record["ts"])


def names(records: list[Record]) -> dict[int, str]:
    return {record["tid"]: record["args"]["name"] for record in records if record["name"] == "thread_name"}


def end(record: Record) -> float:
    return float(record["ts"] + record["dur"])


def violations(content: Record) -> list[str]:
    """Return what breaks the format's rules, as sentences."""
    flow = {"ts", "id", "cat"}
    required = {"X": {"ts", "dur", "cat"}, "M": {"args"}, "s": flow, "t": flow, "f": flow}
    wrong = [] if content.get("displayTimeUnit") in ("ms", "ns") else ["displayTimeUnit is neither ms nor ns"]
    for record in content["traceEvents"]:
        absent_keys = ({"ph", "name", "pid", "tid"} | required.get(record["ph"], {"a known phase"})) - record.keys()
        wrong += [f"{record} has no {name}" for name in absent_keys]
        wrong += [f"{record}: {name} is negative" for name in ("ts", "dur") if record.get(name, 0) < 0]
    return wrong + _flow_violations(content["traceEvents"])


def _flow_violations(records: list[Record]) -> list[str]:
    wrong = []
    flows: dict[tuple[Any, ...], list[Record]] = {}
    for record in records:
        if record["ph"] in ("s", "t", "f"):
            flows.setdefault((record["cat"], record["name"], record["id"]), []).append(record)
            track = [item for item in slices(records) if item["tid"] == record["tid"]]
            holders = [item for item in track if holds(item, record["ts"])]
            wrong += [] if holders else [f"{record} lies in no slice"]
    for flow, parts in flows.items():
        phases = "".join(part["ph"] for part in sorted(parts, key=lambda part: float(part["ts"])))
        wrong += [] if phases == f"s{'t' * (len(parts) - 2)}f" else [f"flow {flow} is {phases}"]
        wrong += [f"{part} ends at the next slice" for part in parts if part["ph"] == "f" and part.get("bp") != "e"]
    return wrong


def holds(record: Record, time: float) -> bool:
    return bool(record["ts"] <= time <= end(record))


def test_it_keeps_the_rules_of_the_format(content: Record) -> None:
    assert violations(content) == []


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"ph": "X", "name": "run 1", "cat": "run", "pid": 1, "tid": 1, "ts": 0.0}, "no dur"),
        ({"ph": "Y", "name": "run 1", "pid": 1, "tid": 1}, "known phase"),
        ({"ph": "s", "name": "frame", "cat": "frame", "id": 1, "pid": 1, "tid": 1, "ts": 0.0}, "no slice"),
    ],
)
def test_a_broken_rule_is_found(record: Record, message: str) -> None:
    assert message in violations({"displayTimeUnit": "ms", "traceEvents": [record]})[0]


def test_each_worker_has_a_track_and_each_queue_too(records: list[Record]) -> None:
    track_names = names(records)
    assert len(set(track_names.values())) == len(track_names)
    workers = [name for name in track_names.values() if not name.startswith("queue")]
    assert workers == ["a", "b, replica 0", "b, replica 1", "c", "d"]
    assert {name.partition(" (")[0] for name in track_names.values()} - set(workers) == {
        f"queue of {stage}" for stage in "abcd"
    }
    # In the order of the plan, each queue above its workers.
    assert [record["tid"] for record in records if record["name"] == "thread_sort_index"] == sorted(track_names)
    assert {record["args"]["name"] for record in records if record["name"] == "process_name"} == {"pipeline diamond"}


def test_events_on_one_track_never_overlap(records: list[Record]) -> None:
    for track in names(records):
        track_slices = [record for record in slices(records) if record["tid"] == track]
        assert track_slices
        # A viewer reckons in whole nanoseconds.
        assert all(
            round(end(record) * 1e3) <= round(successor["ts"] * 1e3) for record, successor in pairwise(track_slices)
        )


def test_one_frame_is_followed_over_all_stages(records: list[Record]) -> None:
    tracks = names(records)
    for frame in range(FRAMES):
        journey = [record for record in slices(records) if record["args"]["frame"] == frame]
        runs = [record for record in journey if record["cat"] == "run"]
        assert [tracks[record["tid"]][0] for record in runs] in (["a", "b", "c", "d"], ["a", "c", "b", "d"])
        assert all(record["name"] == f"{record['cat']} {frame}" for record in journey)
        for stage in "abcd":
            queue, run = (
                next(record for record in journey if tracks[record["tid"]].startswith(name) and record["cat"] == kind)
                for name, kind in ((f"queue of {stage}", "queue"), (stage, "run"))
            )
            assert end(queue) <= run["ts"] + 1e-3
        assert [record["ts"] for record in runs] == [
            record["ts"] for record in records if record.get("id") == frame and record["ph"] in "stf"
        ]


def test_queue_wait_copy_and_compute_are_apart(records: list[Record]) -> None:
    assert {record["cat"] for record in slices(records)} == {"queue", "copy", "run"}


def test_times_are_exact_to_the_nanosecond() -> None:
    start = 123_456.0
    events = [TraceEvent("a", 0, "run", start, start + 1e-6), TraceEvent("a", 1, "run", start + 1e-6, start + 3e-6)]
    first, second = slices(perfetto.records(events))
    assert (first["ts"], first["dur"], second["ts"], second["dur"]) == (0.0, 1.0, 1.0, 2.0)


def test_events_that_overlap_get_tracks_of_their_own() -> None:
    """As when a device is given up, a new worker takes over, and the device comes back after all."""
    events = [TraceEvent("a", 0, "run", 0.0, 5.0), TraceEvent("a", 1, "run", 1.0, 2.0)]
    assert list(names(perfetto.records(events)).values()) == ["a", "a (2)"]


def test_no_event_is_a_valid_file_too(tmp_path: Path) -> None:
    perfetto.save([], tmp_path / "trace.json")
    assert violations(json.loads((tmp_path / "trace.json").read_text())) == []


@pytest.mark.parametrize(("name", "message"), [("missing/trace.json", "no folder"), (".", "is a folder")])
def test_a_place_that_cannot_be_is_refused(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        perfetto.save([], tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_devices_have_tracks_that_show_whose_steps_they_run(tmp_path: Path) -> None:
    plan, trace = alternating_plan(2, 0.001, 0.001), Trace()
    with Pipeline(plan, trace=trace) as running:
        list(running.map([np.zeros(4, np.float32)] * FRAMES))
    perfetto.save(trace.events(), tmp_path / "trace.json", stages=["stage0"])
    content: Record = json.loads((tmp_path / "trace.json").read_text())
    assert not violations(content)
    tracks = names(content["traceEvents"])
    npu = [each for each in slices(content["traceEvents"]) if tracks[each["tid"]] == "device npu"]
    assert sorted(each["name"] for each in npu) == sorted(
        f"stage0.step{step} {number}" for number in range(FRAMES) for step in (1, 3)
    )
    # One frame has it at a time, so that one track is enough.
    assert all(end(earlier) <= later["ts"] for earlier, later in pairwise(npu))
    assert "device npu (2)" not in tracks.values()
    assert "device cpu" in tracks.values()
