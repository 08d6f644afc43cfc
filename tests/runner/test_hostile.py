"""Damaged and hostile bundles end in one line that names the part; nothing that they say ends the process."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.core.board.board import Board, Device
from pipeline.core.plan.plan import Plan, StagePlan, TensorSpec
from tests.support.arithmetic_bundles import ArithmeticCodes, save
from tests.support.arithmetic_graphs import Code
from tests.support.bundles import rewrite, run_fuzzer
from tests.support.runner import Library, RunnerError

pytestmark = pytest.mark.thorough


@pytest.fixture
def bundle(digits: Path, tmp_path: Path) -> Path:
    """A copy that may be changed."""
    return Path(shutil.copytree(digits, tmp_path / "copied.bundle"))


def refuse(library: Library, bundle: Path, *words: str) -> None:
    with pytest.raises(RunnerError) as caught:
        library.open(bundle)
    text = str(caught.value)
    assert len(text.splitlines()) == 1, text
    for word in words:
        assert word in text, text


@pytest.mark.parametrize("name", ["stage0.so", "stage1.parameters"])
def test_a_changed_file_is_refused(library: Library, bundle: Path, name: str) -> None:
    data = bytearray((bundle / name).read_bytes())
    data[len(data) // 2] ^= 1
    (bundle / name).write_bytes(data)
    refuse(library, bundle, name, "SHA-256 differs")
    (bundle / name).write_bytes(data[:-1])
    refuse(library, bundle, name, f"has {len(data) - 1} bytes instead of {len(data)}")
    (bundle / name).unlink()
    refuse(library, bundle, name, "No such file")
    (bundle / name).mkdir()
    refuse(library, bundle, name, "is no regular file")


def test_a_changed_manifest_is_refused(library: Library, bundle: Path) -> None:
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace("stage0", "stage9", 1))
    refuse(library, bundle, "manifest.json", "does not have the checksum")
    path.unlink()
    refuse(library, bundle, "manifest.json", "No such file")


CHANGES: dict[str, tuple[Callable[[Any], None], str]] = {
    "a newer format": (lambda content: content.update(format=2), "it has format 2, newer than 1"),
    "another TVM": (lambda content: content.update(tvm="0.99.1"), "comes from TVM '0.99.1', but this runner has 0."),
    "another processor": (
        lambda content: content["stages"][1].update(machine="sparc64"),
        "stage 'stage1' is built for 'sparc64', but this machine is",
    ),
    "instructions that nobody has": (
        lambda content: content["stages"][0].update(features=["avx1024"]),
        "stage 'stage0' uses 'avx1024', which this processor does not have",
    ),
    "VTA": (
        lambda content: content["plan"]["board"]["devices"][0].update(kind="vta"),
        "stage 'stage0' is for 'cpu' of kind 'vta'; this runner has the CPU only",
    ),
    "state": (
        lambda content: content["plan"].update(states=[{"input": {"name": "h"}}]),
        "it keeps the state 'h' from frame to frame, which this runner does not",
    ),
    "steps": (
        lambda content: content["plan"]["stages"][0].update(steps=[{"device": "cpu"}]),
        "stage 'stage0' has steps on several devices, which this runner does not run",
    ),
    "a package of Python's": (
        lambda content: content["stages"][0].update(runtimes=["onnxruntime"]),
        "stage 'stage0' needs 'onnxruntime', which this runner does not have",
    ),
    "a file elsewhere": (
        lambda content: content["stages"][0]["library"].update(file="../stage0.so"),
        "which is no name of a file in the bundle",
    ),
    "a parameter outside": (
        lambda content: content["stages"][0]["entries"][-1].update(offset=1 << 40),
        "] is not inside of the ",
    ),
    "a place where nothing may lie": (
        lambda content: content["stages"][0]["entries"][0].update(offset=4),
        "entries[0].offset is no multiple of 64",
    ),
    "a missing field": (lambda content: content["plan"]["stages"][1].pop("queue_depth"), "queue_depth is missing"),
    "a text for a number": (
        lambda content: content["plan"]["stages"][1].update(replicas="2"),
        "plan.stages[1].replicas is no integer",
    ),
    "a tensor that nothing makes": (
        lambda content: content["plan"]["stages"][1]["inputs"][0].update(name="x"),
        "plan.stages[1].inputs[0] is 'x', which nothing before it makes",
    ),
    "too many bytes": (
        lambda content: content["plan"]["inputs"][0].update(shape=[1 << 47, 1 << 47]),
        "has more bytes than any machine",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_manifest_that_cannot_be_is_refused(library: Library, bundle: Path, name: str) -> None:
    change, words = CHANGES[name]
    rewrite(bundle, change)
    refuse(library, bundle, "manifest.json", words)


@pytest.mark.parametrize("document", ["", "{", "[]", "null", "[" * 100_000, '{"format": 1e400}', '{"format":1}x', "\0"])
def test_what_is_no_manifest_is_refused(library: Library, bundle: Path, document: str) -> None:
    from hashlib import sha256

    (bundle / "manifest.json").write_text(document)
    (bundle / "manifest.sha256").write_text(f"{sha256(document.encode()).hexdigest()}  manifest.json\n")
    refuse(library, bundle, "manifest.json")


def test_a_plan_that_its_code_does_not_follow_fails_in_the_frame(library: Library, bundle: Path) -> None:
    def swap(content: Any) -> None:
        content["stages"].reverse()

    rewrite(bundle, swap)
    import numpy as np

    with library.open(bundle) as running:
        (result,) = running.stream([{"image": np.zeros((1, 1, 32, 32), np.float32)}])
    assert result.stage == "stage0"
    assert result.reason
    assert json.loads((bundle / "manifest.json").read_text())["format"] == 1


def test_changed_manifests_with_fitting_checksums(digits: Path, library: Library, tmp_path: Path, root: Path) -> None:
    run_fuzzer(root, "runner_fuzzer", digits, tmp_path / "changed.bundle", range(1000))


@pytest.mark.slow
def test_a_process_opens_more_bundles_than_a_path_has_letters(
    built: Path, native: Path, codes: ArithmeticCodes, tmp_path: Path
) -> None:
    """In a process of its own, since what was loaded stays."""
    count = 30
    specs = tuple(TensorSpec(f"t{number}", (2,), "int64") for number in range(count + 1))
    stages = tuple(
        StagePlan(f"s{number}", "cpu", (specs[number],), (specs[number + 1],), queue_depth=1) for number in range(count)
    )
    plan = Plan("long", "", Board("one", (Device("cpu"),)), specs[:1], specs[-1:], stages)
    bundle = save(plan, [Code()] * count, codes, tmp_path / "long.bundle")
    line = [sys.executable, "-m", "tests.support.runner_openings", built, native, bundle, "70"]
    result = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=False, timeout=200)
    assert (result.returncode, result.stdout) == (0, f"{70 * count} libraries\n"), result.stderr
