"""Groups are measured once, whichever model they are in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.board import Board, Cluster, Device
from pipeline.executor import copying, present, processor, profile
from pipeline.executor.build import compile_stage
from pipeline.executor.cost_cache import CostCache
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
    assert len(first) == 3
    assert all(seconds > 0 for seconds in first)
    count = len(built)
    assert count >= 2
    assert profile.measure(pairs, HOST, lambda _: None, cache=cache) == first
    assert len(built) == count
    profile.measure(pairs, HOST, lambda _: None, cache=CostCache(tmp_path / "cache", fresh=True))
    assert len(built) == 2 * count


def test_a_second_model_builds_only_what_is_new(tmp_path: Path, built: list[str]) -> None:
    cache = CostCache(tmp_path / "cache")
    first = profile.measure(groups(tmp_path, "t", ["Conv", "Softmax"]), HOST, lambda _: None, cache=cache)
    built.clear()
    # The known ones stand in front of the new one, which reads what they would make, in their own layout.
    pairs = groups(tmp_path, "u", ["Conv", "Softmax", "LogSoftmax"])
    second = profile.measure(pairs, HOST, lambda _: None, cache=cache)
    assert built == ["u2"]
    assert second[:2] == first
    assert second[2] > 0


def test_equal_groups_have_one_time(tmp_path: Path) -> None:
    pairs = groups(tmp_path, "t", ["Softmax", "Softmax", "Softmax"])
    assert len(set(profile.measure(pairs, HOST, lambda _: None))) == 1


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
