"""The Python of a vendor's compiler: named by an option, an argument or a variable, and checked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipeline.errors import BoardError
from pipeline.measure.quotes.compilers import check_names, find_python, variable
from tests.support.rknn_compiler import install_rknn


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable("rknn"), raising=False)


def test_nothing_names_a_compiler() -> None:
    assert find_python("rknn", {}) == ""


def test_an_argument_comes_before_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_rknn(tmp_path, monkeypatch)
    monkeypatch.setenv(variable("rknn"), "/none/python")
    assert find_python("rknn", {"rknn": sys.executable}) == str(Path(sys.executable).absolute())


def test_relative_paths_are_those_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_rknn(tmp_path, monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    assert find_python("rknn", {"rknn": "./python"}) == str(tmp_path / "python")


@pytest.mark.parametrize(
    ("python", "message"),
    [
        ("/none/python", "there is no program '/none/python', which is to have rknn-toolkit2; run: make rknn"),
        (
            sys.executable,
            "is no Python with rknn-toolkit2; run: make rknn; name its Python by --tool rknn=",
        ),
        ("/bin/cat", "'/bin/cat' is no Python with rknn-toolkit2"),
    ],
)
def test_pythons_without_the_compiler(python: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BoardError, match=message):
        find_python("rknn", {"rknn": python})
    monkeypatch.setenv(variable("rknn"), python)
    with pytest.raises(BoardError, match=message):
        find_python("rknn", {})


def test_unknown_compilers() -> None:
    with pytest.raises(BoardError, match="'hailo' is no compiler that quotes; known are rknn, vela"):
        check_names({"hailo": "python"})
