"""``doctor``: this machine's checks, and its versions, as a report of a fault needs them."""

from __future__ import annotations

import json
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pipeline.doctor.machine import Machine
from pipeline.doctor.request import make_request
from pipeline.doctor.subjects import examine
from pipeline.system.version import VERSION
from tests.support import recorded_machine as recorded


def test_versions_packages_and_checks(command: Any) -> None:
    result = command("doctor")
    assert result.err == ""
    for text in (sys.prefix, f"soc-pipeline {VERSION}", f"numpy {np.__version__}", "apache-tvm-ffi", "packages"):
        assert text in result.out
    answer = command("doctor", "--json")
    facts = json.loads(answer.out)
    assert {package["name"]: package["installed"] for package in facts["packages"]}["numpy"] == np.__version__
    states = {check["name"]: check["state"] for check in facts["checks"]}
    assert states["packages"] == "ok"
    assert answer.status == int(bool({"missing", "wrong"} & set(states.values())))


def test_extras_are_listed_once_and_those_of_developers_not(command: Any) -> None:
    packages = json.loads(command("doctor", "--json").out)["packages"]
    extras = {package["extra"] for package in packages}
    assert extras >= {"", "onnx", "torch", "tflite", "ros2", "pynq"}
    assert not extras & {"dev", "test", "docs", "all"}
    assert len({(package["name"], package["extra"]) for package in packages}) == len(packages)
    assert "soc-stages" not in {package["name"] for package in packages}
    assert all(package["fits"] for package in packages if not package["extra"])


def test_a_version_out_of_range_is_a_fault(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.1.15" if name == "apache-tvm-ffi" else version(name))
    result = command("doctor")
    assert result.status == 1
    assert "0.1.15, needs <0.1.15,>=0.1.14" in result.out
    assert "pip install 'apache-tvm-ffi<0.1.15,>=0.1.14" in result.out


def test_without_an_installation_it_says_so(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def miss(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", miss)
    result = command("doctor")
    assert (result.status, result.err) == (1, "")
    assert "is not installed in" in result.out


def test_variables_that_matter_are_shown(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "[3]")
    assert "TVM_NUM_THREADS=[3]" in command("doctor").out


def test_what_is_asked_for_is_checked(command: Any, bundle: Path) -> None:
    answer = command("doctor", bundle, "--source", "camera:/dev/video_that_is_not_here", "--json")
    checks = {check["name"]: check for check in json.loads(answer.out)["checks"]}
    assert answer.status == 1
    assert checks["video_that_is_not_here"]["state"] == "missing"
    assert [check["state"] for name, check in checks.items() if name.startswith("stage ")] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("camera:", "names nothing to read; write such as camera:/dev/video0"),
        ("exec:", "there is no command"),
        ("exec:'rpicam-vid", "no closing quotation"),
        ("no-such-source", "no source at"),
    ],
)
def test_a_source_that_is_none_is_one_line(command: Any, source: str, message: str) -> None:
    result = command("doctor", "--source", source)
    assert (result.status, result.out, result.err.count("\n")) == (2, "", 1)
    assert message in result.err


@pytest.mark.parametrize(
    ("name", "status", "message"),
    [
        ("raspberry-pi-6", 2, "unknown board"),
        ("boards/none.toml", 2, "cannot read the board"),
        ("none.bundle", 2, "does not exist"),
        ("tests", 2, "is not a bundle"),
    ],
)
def test_what_is_no_board_and_no_bundle_is_one_line(command: Any, name: str, status: int, message: str) -> None:
    result = command("doctor", name)
    assert (result.status, result.out) == (status, "")
    assert message in result.err
    assert result.err.count("\n") == 1


def test_a_bundle_is_compared_with_the_machine(bundle: Path, tmp_path: Path) -> None:
    request = make_request(str(bundle))
    here = [check for check in examine(Machine(), request) if check.name.startswith("stage ")]
    assert [check.state for check in here] == ["ok", "ok"]
    other_machine = recorded.PI_5 if platform.machine() == "x86_64" else recorded.LAPTOP
    checks = examine(other_machine.machine(tmp_path), request)
    there = [check for check in checks if check.name.startswith("stage ")]
    assert [check.state for check in there] == ["wrong", "wrong"]
    assert all("is built for" in check.finding and "board" in check.remedy for check in there)
