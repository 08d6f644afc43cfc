"""Groups are measured once, whichever model they are in."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.board import Board, Cluster, Device
from pipeline.errors import BuildError
from pipeline.executor import copying, present, processor, profile
from pipeline.executor.build import compile_stage
from pipeline.executor.cost_cache import CostCache
from pipeline.executor.passage import Passage
from pipeline.plans import StagePlan
from pipeline.split import extract
from tests.onnx_models import node, save, weights

HOST = Device("cpu", cores=(0,))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile, "ENOUGH_S", 0.0)
    monkeypatch.setattr(profile, "ROUNDS", 2)


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The stages that are compiled."""
    seen: list[str] = []

    def noting(module: Any, *arguments: Any, **options: Any) -> Any:
        seen.append(str(module["main"].params[0].name))
        return compile_stage(module, *arguments, **options)

    monkeypatch.setattr(profile, "compile_stage", noting)
    return seen


def groups(folder: Path, name: str, kinds: list[str]) -> list[tuple[StagePlan, Any]]:
    """Return the groups of a chain of convolutions and others, with tensors called after `name`."""
    nodes = []
    for number, kind in enumerate(kinds):
        read, made = f"{name}{number}", f"{name}{number + 1}"
        nodes.append(node("Conv", f"{read} w", made, pads=[1] * 4) if kind == "Conv" else node(kind, read, made))
    inputs = {f"{name}0": (1, 4, 8, 8)}
    graph = pipeline.read(
        save(folder / f"{name}.onnx", nodes, inputs, [f"{name}{len(kinds)}"], {"w": weights(4, 4, 3, 3)})
    )
    return [
        (StagePlan(f"group{number}", "cpu", part.inputs, part.outputs), extract.module(part))
        for number, part in enumerate(extract.parts(graph, graph.group_ends[:-1]))
    ]


def test_a_second_measurement_builds_nothing(tmp_path: Path, built: list[str]) -> None:
    pairs, cache = groups(tmp_path, "t", ["Conv", "Softmax", "Conv"]), CostCache(tmp_path / "cache")
    first = profile.measure(pairs, HOST, lambda _: None, cache=cache)
    assert len(first.alone) == 3
    assert all(seconds > 0 for seconds in first.alone)
    count = len(built)
    assert count >= 2
    assert profile.measure(pairs, HOST, lambda _: None, cache=cache) == first
    assert len(built) == count
    profile.measure(pairs, HOST, lambda _: None, cache=CostCache(tmp_path / "cache", fresh=True))
    assert len(built) == 2 * count


def test_a_second_model_builds_only_what_is_new(tmp_path: Path, built: list[str]) -> None:
    cache = CostCache(tmp_path / "cache")
    first = profile.measure(groups(tmp_path, "t", ["Conv", "Softmax"]), HOST, lambda _: None, cache=cache).alone
    built.clear()
    # The known ones stand in front of the new one, which reads what they would make, in their own layout.
    pairs = groups(tmp_path, "u", ["Conv", "Softmax", "LogSoftmax"])
    second = profile.measure(pairs, HOST, lambda _: None, cache=cache).alone
    assert built == ["u2"]
    assert second[:2] == first
    assert second[2] > 0


def test_equal_groups_have_one_time(tmp_path: Path) -> None:
    pairs = groups(tmp_path, "t", ["Softmax", "Softmax", "Softmax"])
    assert len(set(profile.measure(pairs, HOST, lambda _: None).alone)) == 1


def test_a_core_alone_has_no_other_times(tmp_path: Path) -> None:
    alone, crowded = profile.measure(groups(tmp_path, "t", ["Conv", "Softmax"]), HOST, lambda _: None)
    assert crowded == alone


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_groups_are_measured_alone_and_while_the_other_cores_are_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = sorted(os.sched_getaffinity(0))[:2]
    both, cache = Device("cpu", cores=(one, other)), CostCache(tmp_path / "cache")
    threads: dict[str, set[int]] = {}

    def noting(frame: Any) -> dict[int, float]:
        threads.setdefault(threading.current_thread().name.split("_")[0], os.sched_getaffinity(0))
        return run(frame)

    run = Passage.run
    monkeypatch.setattr(Passage, "run", noting)
    pairs = groups(tmp_path, "t", ["Conv", "Softmax", "Conv"])
    found = profile.measure(pairs, both, lambda _: None, cache=cache)
    assert threads == {"profile": {other}, f"busy {one}": {one}}
    assert len(found.crowded) == 3
    assert all(seconds > 0 for seconds in found.crowded)
    # Neither is measured again, and the caller's thread goes where it likes.
    assert profile.measure(pairs, both, lambda _: None, cache=cache) == found
    assert os.sched_getaffinity(0) >= {one, other}
    # Threads that were started for it have ended.
    assert not [each.name for each in threading.enumerate() if each.name.startswith(("busy", "profile"))]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_what_goes_wrong_on_a_busy_core_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(frame: Any) -> dict[int, float]:
        if threading.current_thread().name.startswith("busy"):
            raise BuildError("no")
        return run(frame)

    run = Passage.run
    monkeypatch.setattr(Passage, "run", failing)
    cores = tuple(sorted(os.sched_getaffinity(0))[:2])
    with pytest.raises(BuildError, match="no"):
        profile.measure(groups(tmp_path, "t", ["Softmax"]), Device("cpu", cores=cores), lambda _: None)


def test_nothing_is_kept_unless_a_cache_is_given(tmp_path: Path, built: list[str], own_cache: Path) -> None:
    before = set(own_cache.rglob("*"))
    for _ in range(2):
        profile.measure(groups(tmp_path, "t", ["Softmax"]), HOST, lambda _: None)
    assert len(built) == 2
    assert set(own_cache.rglob("*")) == before


def test_the_fastest_cores_are_measured() -> None:
    device = Device("cpu", clusters=(Cluster("big", (4, 5)), Cluster("little", (0, 1), 0.4)))
    assert profile.fastest_cores(device, 1) == (5,)
    assert profile.fastest_cores(device, 2) == (4, 5)
    assert profile.fastest_cores(Device("gpu", "cuda"), 1) == ()


# Copying.


def test_memory_and_links_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache, far = CostCache(tmp_path), Device("far", memory="far", cores=(0,))
    rate, link = copying.memory_rate(HOST, cache), copying.link(HOST, far, cache)
    assert rate > 0
    assert (link.ends, link.measured) == (("host", "far"), True)
    assert link.bytes_per_s > 0
    assert link.latency_s >= 0
    Board("b", (HOST, far), (link,))
    monkeypatch.setattr(copying, "least", lambda _: pytest.fail("measured again"))
    assert (copying.memory_rate(HOST, cache), copying.link(HOST, far, cache)) == (rate, link)


# What is here.


def test_the_host_is_here_and_other_processors_are_not() -> None:
    assert present.why_absent(HOST) == ""
    other = "aarch64" if processor.machine() != "aarch64" else "x86_64"
    away = Device("cpu", target={"kind": "llvm", "mtriple": f"{other}-linux-gnu"})
    assert f"is built for {other}, but this machine is" in present.why_absent(away)
    assert "is on another machine" in present.why_absent(Device("cpu", "remote", address="remote://there:1/cpu"))
    assert "compute nothing" in present.why_absent(Device("dream", "simulated"))
    assert "nothing drives devices of kind 'abacus'" in present.why_absent(Device("odd", "abacus"))


def test_looking_for_accelerators_never_fails() -> None:
    for found in present.accelerators():
        assert found.kind in present.ACCELERATORS
    assert processor.full_name()
