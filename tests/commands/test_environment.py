"""``environment``: versions and packages, as a report of a fault needs them."""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

import numpy as np
import pytest

from pipeline.commands import environment
from pipeline.system.version import VERSION


def test_versions_and_packages(command: Any) -> None:
    result = command("environment")
    assert (result.status, result.err) == (0, "")
    for text in (sys.prefix, f"soc-pipeline {VERSION}", np.__version__, "apache-tvm-ffi"):
        assert text in result.out
    answer = json.loads(command("environment", "--json").out)
    installed = {package["name"]: package["installed"] for package in answer["packages"]}
    assert installed["numpy"] == np.__version__
    assert answer["cores"] >= 1


def test_extras_are_listed_once_and_those_of_developers_not(command: Any) -> None:
    packages = environment.describe().packages
    assert {package.extra for package in packages} >= {"", "onnx", "torch", "tflite", "ros2", "pynq"}
    assert not {package.extra for package in packages} & {"dev", "test", "docs", "all"}
    assert len(set(packages)) == len(packages)
    assert "soc-stages" not in {package.name for package in packages}
    assert all(package.fits for package in packages if not package.extra)


def test_what_is_missing_has_its_remedy(command: Any) -> None:
    if next(package for package in environment.describe().packages if package.extra == "pynq").installed:
        pytest.skip("this is a PYNQ board")
    assert "pip install 'pynq<4,>=3.0'" in command("environment").out


def test_a_version_out_of_range_is_a_failure(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "0.1.15" if name == "apache-tvm-ffi" else version(name))
    result = command("environment")
    assert result.status == 1
    assert "no: needs <0.1.15,>=0.1.14" in result.out


def test_variables_that_matter_are_shown(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TVM_NUM_THREADS", "[3]")
    assert "TVM_NUM_THREADS=[3]" in command("environment").out


def test_without_an_installation_there_is_one_line(command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def miss(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "metadata", miss)
    result = command("environment")
    assert (result.status, result.out) == (2, "")
    assert "is not installed" in result.err
    assert result.err.count("\n") == 1
