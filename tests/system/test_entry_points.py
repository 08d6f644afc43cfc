"""Entry points of other packages: found by name, and blamed by name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import BoardError
from pipeline.system.entry_points import entry_names, entry_owner, load_entry
from tests.support.distributions import write_distribution

GROUP = "soc_pipeline.tools"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_an_entry_is_imported_when_it_is_asked_for(folder: Path) -> None:
    write_distribution(folder, "hammers", "HAMMER = 'a hammer'", {GROUP: {"hammer": "hammers:HAMMER"}})
    assert entry_names(GROUP) == ("hammer",)
    assert "hammers" not in sys.modules
    assert load_entry(GROUP, "hammer") == "a hammer"
    assert entry_owner(GROUP, "hammer") == "hammers 1.0"


def test_what_no_package_has_is_none(folder: Path) -> None:
    write_distribution(folder, "saws", "SAW = 'a saw'", {GROUP: {"saw": "saws:SAW"}})
    assert load_entry(GROUP, "sawn") is None
    assert entry_owner(GROUP, "sawn") == ""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("import blunt_instruments", "No module named 'blunt_instruments'"),
        ("1 / 0", "division by zero"),
        ("def (", "syntax"),
        ("OTHER = 1", "has no attribute 'AXE'"),
    ],
)
def test_a_broken_package_is_named_with_the_cause(folder: Path, text: str, cause: str) -> None:
    name = f"axes{abs(hash(cause))}"
    write_distribution(folder, name, text, {GROUP: {"axe": f"{name}:AXE"}})
    with pytest.raises(BoardError, match=rf"'axe' of the entry points .*, in the package {name} 1\.0.*{cause}"):
        load_entry(GROUP, "axe")


def test_two_packages_with_one_name_are_both_named(folder: Path) -> None:
    for name in ("files_a", "files_b"):
        write_distribution(folder, name, "FILE = 1", {GROUP: {"file": f"{name}:FILE"}})
    with pytest.raises(BoardError, match=r"several packages: files_a 1\.0, files_b 1\.0; uninstall all but one"):
        load_entry(GROUP, "file")


def test_kinds_that_are_known_are_looked_up_without_a_search(root: Path) -> None:
    code = (
        "import sys; from pipeline.core.board import board_file, device_kinds; "
        "device_kinds.device_kind('cpu'); board_file.decode(b'[[devices]]\\nname = \"gpu\"\\nkind = \"cuda\"', 'b'); "
        "print('importlib.metadata' in sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
