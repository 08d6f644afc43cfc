"""A bundle that was changed is refused, naming the part and the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipeline.executor import processor
from tests.executor.bundles import PARTS, refused, rewrite


@pytest.mark.parametrize("part", [*PARTS, "manifest.json", "manifest.sha256"])
@pytest.mark.parametrize("place", [0.0, 0.31, 0.77, 1.0])
def test_one_changed_byte_is_found(copied: Path, part: str, place: float) -> None:
    path = copied / part
    data = bytearray(path.read_bytes())
    data[int(place * (len(data) - 1))] ^= 1
    path.write_bytes(data)
    refused(copied, "manifest.json" if part.startswith("manifest") else part)


def test_a_changed_byte_anywhere_in_the_manifest_is_found(pristine: Path, tmp_path: Path) -> None:
    for name in ("manifest.json", "manifest.sha256"):
        data = (pristine / name).read_bytes()
        folder = tmp_path / name
        folder.mkdir()
        for other in ("manifest.json", "manifest.sha256"):
            shutil.copyfile(pristine / other, folder / other)
        for place in range(0, len(data), max(1, len(data) // 60)):
            (folder / name).write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
            refused(folder, "manifest")


@pytest.mark.parametrize("part", [*PARTS, "manifest.json", "manifest.sha256"])
def test_a_truncated_part_is_found(copied: Path, part: str) -> None:
    data = (copied / part).read_bytes()
    (copied / part).write_bytes(data[:-1])
    refused(copied, "manifest" if part.startswith("manifest") else part)


@pytest.mark.parametrize("part", [*PARTS, "manifest.json", "manifest.sha256"])
def test_a_missing_part_is_found(copied: Path, part: str) -> None:
    (copied / part).unlink()
    refused(copied, part)


def test_two_exchanged_parts_are_found(copied: Path) -> None:
    data = (copied / "stage0.so").read_bytes()
    (copied / "stage0.so").write_bytes((copied / "stage2.so").read_bytes())
    (copied / "stage2.so").write_bytes(data)
    refused(copied, "stage0.so")


@pytest.mark.parametrize("where", ["nowhere", "a file", "an empty folder"])
def test_what_is_no_bundle(tmp_path: Path, where: str) -> None:
    path = tmp_path / "no.bundle"
    if where == "a file":
        path.write_text("hello")
    elif where == "an empty folder":
        path.mkdir()
    refused(path, "does not exist" if where == "nowhere" else "is not a bundle")


def test_a_newer_format_is_refused(copied: Path) -> None:
    def change(content: Any) -> None:
        content.clear()
        content.update(format=99, new="fields that this version does not know")

    rewrite(copied, change)
    refused(copied, "manifest.json", "format 99, newer than 1", "upgrade soc-pipeline")


def test_a_newer_plan_is_refused(copied: Path) -> None:
    rewrite(copied, lambda content: content["plan"].update(format=99))
    refused(copied, "manifest.json", "format 99")


def test_a_foreign_architecture_is_refused(copied: Path) -> None:
    other = "aarch64" if processor.machine() == "x86_64" else "x86_64"
    rewrite(copied, lambda content: content["stages"][1].update(machine=other))
    refused(copied, "stage1", "stage1.so", f"is built for {other}, but this machine is {processor.machine()}")


@pytest.mark.skipif(not processor.flags(), reason="this system does not tell what its processor has")
def test_an_extension_that_is_missing_here_is_refused(copied: Path) -> None:
    rewrite(copied, lambda content: content["stages"][2].update(features=["avx9000"]))
    refused(copied, "stage2.so", "uses avx9000, which this processor does not have")


@pytest.mark.parametrize("name", ["../stage0.so", "/etc/passwd", "sub/stage0.so", "..", ".", "", "./stage0.so"])
@pytest.mark.parametrize("kind", ["library", "parameters"])
def test_parts_outside_of_the_folder_are_refused(copied: Path, name: str, kind: str) -> None:
    shutil.copyfile(copied / "stage0.so", copied.parent / "stage0.so")
    (copied / "sub").mkdir()
    shutil.copyfile(copied / "stage0.so", copied / "sub" / "stage0.so")
    rewrite(copied, lambda content: content["stages"][0][kind].update(file=name))
    refused(copied, repr(name), "is missing")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda content: content["stages"].pop(), "lists 2 of 3 stages"),
        (lambda content: content.pop("plan"), "is not valid"),
        (lambda content: content["plan"]["stages"].reverse(), "is not valid"),
        (lambda content: content["stages"][0].update(machine=7), "is not valid"),
        (lambda content: content["plan"]["stages"][0].update(device="gone"), "no device 'gone'"),
        (lambda content: content["stages"][0]["entries"][0].update(offset=1 << 40), "stage0.parameters"),
        (lambda content: content["stages"][0]["entries"][0].update(dtype="O"), "stage0.parameters"),
        (lambda content: content["stages"][0]["entries"][0].update(shape=[-1]), "stage0.parameters"),
    ],
)
def test_impossible_manifests_are_refused(copied: Path, change: Callable[[Any], None], words: str) -> None:
    rewrite(copied, change)
    refused(copied, words)
