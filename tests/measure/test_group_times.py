"""Groups are measured once, whichever model they are in."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Board, Cluster, Device
from pipeline.core.plan.plan import StagePlan
from pipeline.core.plan.stage_options import NO_OPTIONS, StageOptions
from pipeline.errors import BuildError
from pipeline.executor import detection, host_target
from pipeline.measure import group_times, link_rates
from pipeline.measure.cost_cache import CostCache
from pipeline.measure.frame_pass import FramePass
from pipeline.measure.sampling import MeasureOptions
from pipeline.split import extract
from tests.support.onnx_models import node, save, weights
from tests.support.sampling import QUICK

HOST = Device("cpu", cores=(0,))


def measure(
    pairs: list[tuple[StagePlan, Any]], device: Device = HOST, cache: CostCache | None = None, **options: Any
) -> tuple[group_times.GroupTimes, list[str]]:
    """Measure a little, and return the times and what was built for it."""
    texts: list[str] = []
    stage_options = options.pop("stage_options", NO_OPTIONS)
    measuring = MeasureOptions(CostCache(None) if cache is None else cache, QUICK, texts.append, stage_options)
    times = group_times.measure(pairs, device, measuring, **options)
    return times, [text for text in texts if text.startswith("building")]


def groups(folder: Path, name: str, kinds: list[str]) -> list[tuple[StagePlan, Any]]:
    """Return the groups of a chain of convolutions and others, with tensors called after `name`."""
    nodes = []
    for number, kind in enumerate(kinds):
        source, target = f"{name}{number}", f"{name}{number + 1}"
        convolution = kind == "Conv"
        nodes.append(node(kind, f"{source} w", target, pads=[1] * 4) if convolution else node(kind, source, target))
    inputs, outputs = {f"{name}0": (1, 4, 8, 8)}, [f"{name}{len(kinds)}"]
    graph = pipeline.read(save(folder / f"{name}.onnx", nodes, inputs, outputs, {"w": weights(4, 4, 3, 3)}))
    return [
        (StagePlan(f"group{number}", "cpu", part.inputs, part.outputs), extract.module(part))
        for number, part in enumerate(extract.parts(graph, graph.group_ends[:-1]))
    ]


def test_a_second_measurement_builds_nothing(tmp_path: Path) -> None:
    pairs, cache = groups(tmp_path, "t", ["Conv", "Softmax", "Conv"]), CostCache(tmp_path / "cache")
    first, builds = measure(pairs, cache=cache)
    assert len(first.isolated) == 3
    assert all(seconds > 0 for seconds in first.isolated)
    assert len(builds) >= 2
    assert measure(pairs, cache=cache) == (first, [])
    # Times of other kernels are others.
    winograd, other_builds = measure(pairs, cache=cache, stage_options=StageOptions("float32-exact"))
    assert len(other_builds) >= 2
    assert measure(pairs, cache=cache, stage_options=StageOptions("float32-exact")) == (winograd, [])
    assert measure(pairs, cache=cache) == (first, [])
    _, fresh_builds = measure(pairs, cache=CostCache(tmp_path / "cache", fresh=True))
    assert fresh_builds == builds


def test_a_second_model_builds_only_what_is_new(tmp_path: Path) -> None:
    cache = CostCache(tmp_path / "cache")
    first, _ = measure(groups(tmp_path, "t", ["Conv", "Softmax"]), cache=cache)
    # The known ones stand in front of the new one, which reads what they would make, in their own layout.
    pairs = groups(tmp_path, "u", ["Conv", "Softmax", "LogSoftmax"])
    second, builds = measure(pairs, cache=cache)
    assert builds == ["building group 3 of 3"]
    assert second.isolated[:2] == first.isolated
    assert second.isolated[2] > 0


def test_equal_groups_have_one_time(tmp_path: Path) -> None:
    pairs = groups(tmp_path, "t", ["Softmax", "Softmax", "Softmax"])
    assert len(set(measure(pairs)[0].isolated)) == 1


def test_a_core_alone_has_no_other_times(tmp_path: Path) -> None:
    (isolated, contended), _ = measure(groups(tmp_path, "t", ["Conv", "Softmax"]))
    assert contended == isolated


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_groups_are_measured_alone_and_while_the_other_cores_are_busy(tmp_path: Path) -> None:
    first, second = sorted(os.sched_getaffinity(0))[:2]
    device, cache = Device("cpu", cores=(first, second)), CostCache(tmp_path / "cache")
    threads: dict[str, set[int]] = {}

    class NotingPass(FramePass):
        def run(self) -> dict[int, float]:
            threads.setdefault(threading.current_thread().name.split("_")[0], os.sched_getaffinity(0))
            return super().run()

    pairs = groups(tmp_path, "t", ["Conv", "Softmax", "Conv"])
    times, _ = measure(pairs, device, cache, create_pass=NotingPass)
    assert threads == {"group times": {second}, f"busy {first}": {first}}
    assert len(times.contended) == 3
    assert all(seconds > 0 for seconds in times.contended)
    # Neither is measured again, and the caller's thread goes where it likes.
    assert measure(pairs, device, cache) == (times, [])
    assert os.sched_getaffinity(0) >= {first, second}
    # Threads that were started for it have ended.
    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith(("busy", "group times"))]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_what_goes_wrong_on_a_busy_core_is_told(tmp_path: Path) -> None:
    class FailingPass(FramePass):
        def run(self) -> dict[int, float]:
            if threading.current_thread().name.startswith("busy"):
                raise BuildError("no")
            return super().run()

    cores = tuple(sorted(os.sched_getaffinity(0))[:2])
    with pytest.raises(BuildError, match="no"):
        measure(groups(tmp_path, "t", ["Softmax"]), Device("cpu", cores=cores), create_pass=FailingPass)


def test_nothing_is_kept_unless_a_cache_is_given(tmp_path: Path, own_cache: Path) -> None:
    previous_files = set(own_cache.rglob("*"))
    for _ in range(2):
        _, builds = measure(groups(tmp_path, "t", ["Softmax"]))
        assert len(builds) == 1
    assert set(own_cache.rglob("*")) == previous_files


def test_the_fastest_cores_are_measured() -> None:
    device = Device("cpu", clusters=(Cluster("big", (4, 5)), Cluster("little", (0, 1), 0.4)))
    assert group_times.fastest_cores(device, 1) == (5,)
    assert group_times.fastest_cores(device, 2) == (4, 5)
    assert group_times.fastest_cores(Device("gpu", "cuda"), 1) == ()


# Copying.


def test_memory_and_links_are_measured_once(tmp_path: Path) -> None:
    cache, remote_device = CostCache(tmp_path), Device("far", memory="far", cores=(0,))
    rate, link = link_rates.memory_rate(HOST, cache), link_rates.measure_link(HOST, remote_device, cache)
    assert rate > 0
    assert (link.ends, link.measured) == (("host", "far"), True)
    assert link.bytes_per_s > 0
    assert link.latency_s >= 0
    Board("b", (HOST, remote_device), (link,))
    # Whoever measured again would write again.
    states = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")}
    assert (link_rates.memory_rate(HOST, cache), link_rates.measure_link(HOST, remote_device, cache)) == (rate, link)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.json")} == states


# What is here.


def test_the_host_is_here_and_other_processors_are_not() -> None:
    assert detection.why_absent(HOST) == ""
    architecture = "aarch64" if host_target.machine() != "aarch64" else "x86_64"
    foreign = Device("cpu", target={"kind": "llvm", "mtriple": f"{architecture}-linux-gnu"})
    assert f"is built for {architecture}, but this machine is" in detection.why_absent(foreign)
    assert "is on another machine" in detection.why_absent(Device("cpu", "remote", address="remote://there:1/cpu"))
    assert "compute nothing" in detection.why_absent(Device("dream", "simulated"))
    assert "nothing drives devices of kind 'abacus'" in detection.why_absent(Device("odd", "abacus"))


def test_looking_for_accelerators_never_fails() -> None:
    for accelerator in detection.accelerators():
        assert accelerator.kind in detection.detectable_kinds()
    assert host_target.full_name()
