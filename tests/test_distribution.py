"""An installation is complete: files that are no modules travel by patterns, which a move could leave behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

NOT_INSTALLED = {".py", ".pyc"}


def test_each_file_beside_the_modules_is_installed(root: Path) -> None:
    patterns = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    for package in ("pipeline", "boards"):
        files = {path for path in (root / package).rglob("*") if path.is_file() and path.suffix not in NOT_INSTALLED}
        installed = {path for pattern in patterns[package] for path in (root / package).glob(pattern)}
        assert files == installed, package
        assert files


def test_each_folder_of_modules_is_a_package(root: Path) -> None:
    folders = {path.parent for package in ("pipeline", "boards") for path in (root / package).rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
