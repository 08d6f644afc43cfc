"""Measured times are found again under what they depend on, and under nothing else."""

from __future__ import annotations

import dataclasses
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.core.board.board import Device
from pipeline.core.plan.plan import StagePlan
from pipeline.measure import cost_cache
from pipeline.measure.cost_cache import CostCache, OutputLayout, TimeRecord
from pipeline.split import extract
from pipeline.system.files import cache_folder
from tests.support.onnx_models import node, save, weights

RECORD = TimeRecord("key", 0.5, (OutputLayout((1, 2), inner=True),))


def list_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_record_is_read_back(tmp_path: Path) -> None:
    cache = CostCache(tmp_path / "new")
    assert cache.get("key") is None
    cache.put(RECORD)
    assert cache.get("key") == CostCache(tmp_path / "new").get("key") == RECORD
    assert cache.get("other") is None
    cache.put(TimeRecord("key", 0.25))
    assert cache.get("key") == TimeRecord("key", 0.25)
    assert len(list_files(tmp_path)) == 1


def test_a_fresh_cache_takes_nothing_and_keeps_everything(tmp_path: Path) -> None:
    CostCache(tmp_path).put(RECORD)
    cache = CostCache(tmp_path, fresh=True)
    assert cache.get("key") is None
    cache.put(TimeRecord("key", 0.25))
    assert CostCache(tmp_path).get("key") == TimeRecord("key", 0.25)


def test_without_a_folder_nothing_is_kept() -> None:
    cache = CostCache(None)
    cache.put(RECORD)
    assert cache.get("key") is None


@pytest.mark.parametrize("content", [b"", b"\xff\x00", b"[]", b'{"key": "key"}', b'{"key": "key", "seconds": "1"}'])
def test_a_damaged_record_is_ignored_with_a_warning(tmp_path: Path, content: bytes) -> None:
    cache = CostCache(tmp_path)
    cache.put(RECORD)
    (path,) = list_files(tmp_path)
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"measured time in .* cannot be read .*; it is measured again"):
        assert cache.get("key") is None
    cache.put(RECORD)
    assert cache.get("key") == RECORD


@pytest.mark.parametrize(
    "content",
    [
        b'{"key": "other", "seconds": 1}',
        b'{"key": "key", "seconds": -1}',
        # Planning divides by times.
        b'{"key": "key", "seconds": 0}',
        b'{"key": "key", "seconds": 1, "contended": 0}',
    ],
)
def test_a_record_that_cannot_be_is_not_taken(tmp_path: Path, content: bytes) -> None:
    cache = CostCache(tmp_path)
    cache.put(RECORD)
    list_files(tmp_path)[0].write_bytes(content)
    assert cache.get("key") is None


def test_a_pipe_in_place_of_a_record_is_not_read(tmp_path: Path) -> None:
    """It hung the command: nobody wrote to the pipe."""
    cache = CostCache(tmp_path)
    cache.put(RECORD)
    (path,) = list_files(tmp_path)
    path.unlink()
    os.mkfifo(path)
    with pytest.warns(RuntimeWarning, match="it is a pipe or a device, not a file"):
        assert cache.get("key") is None


def test_a_folder_that_cannot_be_written_costs_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = CostCache(tmp_path / "file")
    with pytest.warns(RuntimeWarning, match="measured times cannot be kept in .*file.*; set SOC_PIPELINE_CACHE"):
        cache.put(RECORD)
    cache.put(RECORD)
    assert cache.get("key") is None


def test_many_writers_and_readers_never_meet_half_a_record(tmp_path: Path) -> None:
    records: list[TimeRecord | None] = []

    def work(number: int) -> None:
        cache = CostCache(tmp_path)
        for turn in range(20):
            cache.put(TimeRecord("key", number + 1 + turn / 100))
            records.append(cache.get("key"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len([record for record in records if record is not None and record.key == "key"]) == 80
    assert len(list_files(tmp_path)) == 1


# Where.


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOC_PIPELINE_CACHE", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.setenv("SOC_PIPELINE_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    assert cache_folder() == Path("/cache/soc-pipeline")
    monkeypatch.setenv("HOME", "/home/somebody")
    for folder in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", folder)
        assert cache_folder() == Path("/home/somebody/.cache/soc-pipeline")


# Keys.


def group(folder: Path, name: str, *, channels: int = 4, pads: int = 1, activation: str = "Relu") -> tuple[Any, Any]:
    """Return a convolution with an activation, whose tensors and operators are called after `name`."""
    nodes = [
        node("Conv", f"{name}_x w", f"{name}_c", f"{name}_conv", pads=[pads] * 4),
        node(activation, f"{name}_c", f"{name}_y", f"{name}_act"),
    ]
    path = save(
        folder / f"{name}.onnx",
        nodes,
        {f"{name}_x": (1, channels, 8, 8)},
        [f"{name}_y"],
        {"w": weights(4, channels, 3, 3)},
    )
    (part,) = extract.parts(pipeline.read(path), [])
    return StagePlan("s", "cpu", part.inputs, part.outputs), extract.module(part)


def key(pair: tuple[Any, Any], *, device: Device | None = None, cores: int = 1, in_stage_layout: bool = False) -> str:
    return cost_cache.key_of_group(
        cost_cache.describe_processor(device or Device("cpu"), cores), *pair, [in_stage_layout]
    )


def test_names_and_weights_do_not_count(tmp_path: Path) -> None:
    assert key(group(tmp_path, "one")) == key(group(tmp_path, "two"))


@pytest.mark.parametrize("options", [{"channels": 8}, {"pads": 0}, {"activation": "Sigmoid"}], ids=str)
def test_operators_attributes_and_shapes_count(tmp_path: Path, options: dict[str, Any]) -> None:
    assert key(group(tmp_path, "one")) != key(group(tmp_path, "two", **options))


def test_place_and_layout_count(tmp_path: Path) -> None:
    pair = group(tmp_path, "one")
    arm = Device("cpu", target={"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mcpu": "cortex-a72"})
    keys = [key(pair), key(pair, device=arm), key(pair, cores=2), key(pair, in_stage_layout=True)]
    for address in ("rpc://there:1/cpu", "rpc://elsewhere:1/cpu"):
        keys.append(key(pair, device=dataclasses.replace(arm, kind="rpc", address=address)))
    assert len(set(keys)) == len(keys)
    assert key(pair, device=Device("other name", flops=1)) == key(pair)


def test_the_compilers_own_sources_count(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(cost_cache.COMPILER, tmp_path / "compiler"))
    digest = cost_cache.kernels_digest()
    assert cost_cache.kernels_digest(folder) == cost_cache.describe_processor(Device("cpu"))["kernels"] == digest
    next((folder / "kernels").rglob("*.py")).write_text("# Another way to write a kernel.\n")
    cost_cache.kernels_digest.cache_clear()
    assert cost_cache.kernels_digest(folder) != digest
