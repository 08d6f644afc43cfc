"""What cannot be, of a cluster: each ends in one clear line."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import pipeline
from pipeline import cli
from pipeline.cluster import load
from pipeline.errors import ArgumentError, BoardError, BundleError, DeviceLost
from tests.cluster.conftest import bundle, frame


class Ending(NamedTuple):
    """How a command ended, and what it printed."""

    status: int
    out: str
    err: str


WITHOUT_RAY = """
import sys
sys.modules["ray"] = None
from pipeline.cli import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "chain.bundle"
    bundle().save(path)
    return path


@pytest.fixture
def frames(tmp_path: Path) -> Path:
    path = tmp_path / "frames.npy"
    np.save(path, np.stack([frame(number) for number in range(12)]))
    return path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ending]:
    def call(*words: object) -> Ending:
        capsys.readouterr()
        status = cli.main(list(map(str, words)))
        return Ending(status, *capsys.readouterr())

    return call


def unused_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run(root: Path, *words: object, code: str = "import sys; from pipeline.cli import main; sys.exit(main())") -> Any:
    """Run the command in a process of its own, where no cluster is joined yet."""
    return subprocess.run(
        [sys.executable, "-c", code, "run", *map(str, words)],
        env={**os.environ, "PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )


def test_without_ray_the_extra_is_named(root: Path, saved: Path, frames: Path) -> None:
    result = run(root, saved, "--input", frames, "--cluster", "auto", code=WITHOUT_RAY)
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "a cluster of Ray: needs ray; " in result.stderr


def test_what_belongs_to_a_cluster_needs_one(command: Any, saved: Path, frames: Path) -> None:
    for words, reason in (
        (["--replicas", 2], "--replicas is for a cluster"),
        (["--retry", 2], "--retry is for a cluster"),
        (["--cluster", "auto", "--watch", frames.parent], "--watch does not go with --cluster"),
    ):
        result = command("run", saved, "--input", frames, *words)
        assert result.status == 2
        assert reason in result.err


def test_options_are_checked_before_anything_is_joined(saved: Path) -> None:
    for options, reason in (
        ({"replicas": 0}, "replicas is 0"),
        ({"replicas": "many"}, "replicas is 'many'"),
        ({"retry": -1}, "retry is -1"),
        ({"timeout": 0}, "timeout is 0"),
    ):
        with pytest.raises(ArgumentError, match=reason):
            load(saved, **options)


@pytest.mark.parametrize("address", ["ray://", "ray://somewhere", "tcp://127.0.0.1:1", "ray://a:b", ""])
def test_what_is_no_cluster_is_named(saved: Path, address: str) -> None:
    with pytest.raises(ArgumentError, match="is no cluster; write it like ray://"):
        load(saved, address=address)


@pytest.mark.parametrize("variable", [False, True])
def test_a_cluster_that_is_not_there_is_named(
    root: Path, saved: Path, frames: Path, monkeypatch: pytest.MonkeyPatch, variable: bool
) -> None:
    pytest.importorskip("ray", reason="needs ray: the extra 'ray'")
    place = f"127.0.0.1:{unused_port()}" if variable else f"ray://127.0.0.1:{unused_port()}"
    if variable:
        monkeypatch.setenv("RAY_ADDRESS", place)
    result = run(root, saved, "--input", frames, "--cluster", "auto" if variable else place)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert f"no cluster at {place}: Connection refused; start one there" in result.stderr


def test_a_bundle_that_is_missing_is_named(cluster: Any, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"'.*none.bundle' does not exist; make one"):
        load(tmp_path / "none.bundle")


def test_a_node_without_a_resource_is_named(cluster: Any, saved: Path) -> None:
    with pytest.raises(BoardError, match="no node has device:vta"):
        load(saved, resources={"device:vta": 1})
    with pytest.raises(BoardError, match="no node has CPU"):
        load(saved, cpus=1000)


def test_what_replicas_refuse_is_named_at_once(cluster: Any) -> None:
    with pytest.raises(DeviceLost, match=r"replica 0: .*'strange'"):
        load(bundle(kind="strange"), replicas=1, resources={})


def test_the_command_runs_on_a_cluster(cluster: Any, command: Any, saved: Path, frames: Path, tmp_path: Path) -> None:
    options = ["--cluster", "auto", "--replicas", 2, "--retry", 1, "--output", tmp_path / "out.npz", "--json"]
    result = command("run", saved, "--input", frames, *options)
    assert (result.status, result.err) == (0, "")
    answer = json.loads(result.out)
    assert (answer["submitted"], answer["delivered"]) == (12, 12)
    assert [stage["name"] for stage in answer["stages"]] == ["cluster", "stage0", "stage1"]
    assert sum(each["frames"] for each in answer["replicas"]) == 12
    with np.load(tmp_path / "out.npz") as archive:
        np.testing.assert_array_equal(archive["t2"], np.load(frames))
    result = command("run", saved, "--input", frames, "--cluster", "auto", "--replicas", 1)
    assert "Replicas: 1, with 12 frames; lost 0" in result.out


def test_a_real_model_computes_the_same_there(cluster: Any, root: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    graph = pipeline.read(root / "pipeline" / "demo" / "digits.onnx")
    path = tmp_path / "digits.bundle"
    pipeline.build(graph, pipeline.plan(graph, stages=2), check=False).save(path)
    random = np.random.default_rng(0)
    inputs = [random.random(graph.inputs[0].shape, np.float32) for _ in range(8)]
    with pipeline.load(path) as here:
        expected = list(here.map(inputs))
    with load(path, replicas=2, cpus=0.5, resources={}) as there:
        for array, answer in zip(there.map(inputs), expected, strict=True):
            np.testing.assert_array_equal(array, answer)
