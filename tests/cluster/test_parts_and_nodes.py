"""What can be said of a cluster without one: bundles in parts, tensors in pieces, cores, and what a node must have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.cluster import bundle_parts
from pipeline.cluster.cluster_plan import cluster_bundle, split_bundle
from pipeline.cluster.core_lease import lease_cores, place_on_cores
from pipeline.cluster.frame_pieces import PIECE, count_pieces, cut_tensors, join_tensors
from pipeline.cluster.replica_notes import ReplicaNotes
from pipeline.cluster.requirement import SMALLEST, Requirement, check_nodes, count_replicas, derive_requirement
from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, TensorSpec
from pipeline.errors import ArgumentError, BoardError, BundleError, PlanError
from pipeline.executor.bundle import Bundle
from pipeline.executor.bundle_description import describe_bundle
from pipeline.scheduler import Trace, TraceEvent
from pipeline.system import affinity
from tests.cluster.conftest import bundle

CORES = affinity.process_cores()


def test_a_bundle_comes_whole_or_not_at_all(tmp_path: Path) -> None:
    parts = bundle_parts.read_parts(bundle())
    assert bundle_parts.find_bundle(parts.digest, tmp_path) is None
    with bundle_parts.lock_bundle(parts.digest, tmp_path):
        path = bundle_parts.keep_bundle(parts, tmp_path)
    assert bundle_parts.find_bundle(parts.digest, tmp_path) == path
    assert Bundle.load(path).plan == bundle().plan == describe_bundle(path).plan
    assert bundle_parts.read_parts(path).digest == parts.digest
    (path / "manifest.json").write_bytes(b"{}")
    assert bundle_parts.find_bundle(parts.digest, tmp_path) is None
    assert bundle_parts.find_bundle(parts.digest, tmp_path) is None
    assert Bundle.load(bundle_parts.keep_bundle(parts, tmp_path)).plan == bundle().plan


def test_what_arrives_damaged_is_not_kept(tmp_path: Path) -> None:
    parts = bundle_parts.read_parts(bundle())
    damaged = replace(parts, files={**parts.files, "manifest.json": np.zeros(3, np.uint8)})
    with pytest.raises(BundleError, match="arrived damaged"):
        bundle_parts.keep_bundle(damaged, tmp_path)
    outside = replace(parts, files={**parts.files, "../other": np.zeros(3, np.uint8)})
    with pytest.raises(BundleError, match="cannot be called"):
        bundle_parts.keep_bundle(outside, tmp_path)
    assert not (tmp_path / "bundles" / parts.digest).exists()


def test_bundles_that_were_not_used_for_longest_make_room(tmp_path: Path) -> None:
    digests = []
    for number in range(bundle_parts.MOST_BUNDLES + 2):
        parts = bundle_parts.read_parts(bundle(elements=number + 1))
        bundle_parts.keep_bundle(parts, tmp_path)
        digests.append(parts.digest)
    kept = [bundle_parts.find_bundle(digest, tmp_path) is not None for digest in digests]
    assert (sum(kept), kept[-1]) == (bundle_parts.MOST_BUNDLES, True)


@pytest.mark.parametrize("dtype", ["float32", "uint8", "float16", "int64", "bool"])
@pytest.mark.parametrize("shape", [(), (0, 3), (1,), (7, 30_001)])
def test_tensors_in_pieces_are_the_same_again(dtype: str, shape: tuple[int, ...]) -> None:
    arrays = [(np.arange(np.prod(shape, dtype=int)) % 251).reshape(shape).astype(dtype), np.ones((3, 5), np.float32).T]
    cut = cut_tensors(arrays)
    specs = [TensorSpec(str(number), array.shape, str(array.dtype)) for number, array in enumerate(arrays)]
    assert len(cut.pieces) == count_pieces(specs)
    assert all(len(piece) <= PIECE for piece in cut.pieces)
    for array, joined in zip(arrays, join_tensors(cut.heads, cut.pieces), strict=True):
        np.testing.assert_array_equal(joined, array)
        assert joined.dtype == array.dtype
        assert joined.flags.writeable


@pytest.mark.skipif(len(CORES) < 2, reason="one core")
def test_no_core_is_leased_twice(tmp_path: Path) -> None:
    first = lease_cores(CORES[1:2], tmp_path)
    assert first.cores == CORES[1:2]
    other = lease_cores(CORES[1:2], tmp_path)
    assert other.cores
    assert other.cores[0] != CORES[1]
    # More than are free: none of them.
    assert lease_cores(CORES, tmp_path).cores == ()
    first.close()
    assert lease_cores(CORES[1:2], tmp_path).cores == CORES[1:2]


def on_cores(plan: Plan, *cores: tuple[int, ...]) -> Plan:
    stages = [replace(stage, cores=each) for stage, each in zip(plan.stages, cores, strict=True)]
    return replace(plan, stages=tuple(stages))


def test_stages_keep_their_places_on_other_cores() -> None:
    plan = on_cores(bundle().plan, (0, 1), (2,))
    assert [stage.cores for stage in place_on_cores(plan, (1, 5, 6)).stages] == [(5, 1), (6,)]
    assert [stage.cores for stage in place_on_cores(plan, ()).stages] == [(), ()]


def with_devices(kind: str, *, board: str = "rk3588", count: int = 1) -> Plan:
    plan = bundle().plan
    devices = [Device(f"npu{number}", kind) for number in range(count)]
    names = [device.name for device in devices]
    stages = [replace(stage, device=names[number % count]) for number, stage in enumerate(plan.stages)]
    return replace(plan, board=Board(board, tuple(devices)), stages=tuple(stages))


def test_requirements_follow_from_the_plan() -> None:
    assert derive_requirement(bundle().plan) == Requirement(SMALLEST)
    assert derive_requirement(on_cores(with_devices("cpu"), (0, 1), (1, 2))) == Requirement(
        3, resources={"board:rk3588": SMALLEST}
    )
    assert derive_requirement(with_devices("cpu", board="host")) == Requirement(2)
    accelerated = {"board:ultra96": SMALLEST, "device:vta": 1}
    assert derive_requirement(with_devices("vta", board="ultra96")) == Requirement(SMALLEST, resources=accelerated)
    assert derive_requirement(with_devices("cuda", board="host", count=2)) == Requirement(SMALLEST, gpus=2)
    chosen = derive_requirement(with_devices("vta"), 0.5, {"mine": 2})
    assert (chosen.cpus, chosen.resources) == (0.5, {"mine": 2})


@pytest.mark.parametrize("cpus", [0, -1, float("nan"), float("inf"), True, "2"])
def test_an_amount_that_is_none_is_refused(cpus: Any) -> None:
    with pytest.raises(ArgumentError, match="cpus is"):
        derive_requirement(bundle().plan, cpus)


def node(alive: bool = True, **resources: float) -> dict[str, Any]:
    return {"Alive": alive, "Resources": resources}


def test_as_many_replicas_as_there_is_room_for() -> None:
    nodes = [node(CPU=4), node(CPU=8, npu=2), node(alive=False, CPU=64, npu=64), node(CPU=0.5, npu=1)]
    assert count_replicas(nodes, Requirement(2)) == 6
    assert count_replicas(nodes, Requirement(SMALLEST)) == 12
    assert count_replicas(nodes, Requirement(2, resources={"npu": 1})) == 2
    assert count_replicas([node(CPU=100_000)], Requirement(1)) == 256


def test_what_no_node_has_is_named() -> None:
    nodes = [node(CPU=4), node(CPU=8, npu=2), node(alive=False, CPU=64, gpu=64)]
    check_nodes(nodes, Requirement(8, resources={"npu": 2}))
    with pytest.raises(BoardError, match=r"no node has device:vta .*--resources='\{\"device:vta\": 1\}'"):
        check_nodes(nodes, Requirement(1, resources={"device:vta": 1}))
    with pytest.raises(BoardError, match="a replica needs 16 CPU, and no node has CPU"):
        check_nodes(nodes, Requirement(16))
    with pytest.raises(BoardError, match="no node has all of it"):
        check_nodes([node(CPU=4), node(npu=1)], Requirement(1, resources={"npu": 1}))


def double(array: np.ndarray) -> np.ndarray:
    return 2 * array


def test_functions_in_front_stay_here(tmp_path: Path) -> None:
    saved = bundle()
    saved.save(tmp_path / "chain.bundle")
    whole = describe_bundle(tmp_path / "chain.bundle").with_stage(double, inputs=["t0"], outputs=["t0"])
    part, count = split_bundle(whole, saved)
    assert count == 1
    assert [stage.name for stage in part.plan.stages] == ["stage0", "stage1"]
    (build,) = cluster_bundle(whole, part, count, workers=6, queue_depth=3).builds
    assert [stage.name for stage in build.plan.stages] == ["double", "cluster"]
    assert (build.plan.stages[1].replicas, build.plan.inputs, build.plan.outputs) == (
        6,
        whole.plan.inputs,
        whole.plan.outputs,
    )
    assert build.codes[1] is None
    behind = bundle().with_stage(double, inputs=["t2"], outputs=[TensorSpec("twice", (4,))])
    with pytest.raises(PlanError, match="only functions in front"):
        split_bundle(behind)
    with pytest.raises(PlanError, match="has other stages"):
        split_bundle(whole, bundle(stages=1))


def test_notes_of_replicas_add_up() -> None:
    trace = Trace()
    notes = ReplicaNotes(bundle().plan, trace)
    for frame, replica in ((0, 0), (1, 2), (2, 2)):
        events = [
            TraceEvent("stage0", 9, "queue", 1.0, 2.0),
            TraceEvent("stage0", 9, "run", 2.0, 5.0),
            TraceEvent("stage1", 9, "failed" if frame == 2 else "run", 5.0, 6.0),
        ]
        notes.add(frame, replica, events, 100.0)
    first, second = notes.summarise(3, 12.0)
    assert (first.frames_in, first.frames_out, first.failed, first.replicas) == (3, 3, 0, 3)
    assert (first.wait_s.p50, first.run_s.p50, first.busy_s, first.busy) == (1.0, 3.0, 9.0, 0.25)
    assert (second.frames_in, second.frames_out, second.failed) == (3, 2, 1)
    runs = [event for event in trace.events() if event.stage == "stage0" and event.kind == "run"]
    assert [(event.frame, event.replica, event.start) for event in runs] == [
        (0, 0, 102.0),
        (1, 2, 102.0),
        (2, 2, 102.0),
    ]
