"""Two distributions share one source tree: together they are complete, and what only runs bundles runs alone."""

from __future__ import annotations

import re
import runpy
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from pipeline import cli
from pipeline.system.distribution import FULL, RUNTIME, install_command
from pipeline.system.version import VERSION
from tests import test_floors as floors

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

NOT_INSTALLED = {".py", ".pyc"}


def _project(root: Path, distribution: str) -> dict[str, Any]:
    folder = root if distribution == FULL else root / "distributions" / "runtime"
    project: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))
    return project


@pytest.fixture(scope="module")
def is_runtime(root: Path) -> Callable[[str], bool]:
    """Return what tells by a module's name whether the runtime's distribution has it."""
    pytest.importorskip("setuptools")
    parts = runpy.run_path(str(root / "distributions" / "parts.py"))
    texts = floors.modules(root)
    packages = {package for package, _ in texts.values()}

    def check(name: str) -> bool:
        path = name.replace(".", "/")
        return bool(parts["is_runtime"](f"{path}/__init__.py" if name in packages else f"{path}.py"))

    return check


def test_what_runs_bundles_imports_nothing_else(root: Path, is_runtime: Callable[[str], bool]) -> None:
    """But in functions, where whoever lacks it is told the other distribution's name."""
    texts = floors.modules(root)
    sentences = []
    for name, (package, text) in texts.items():
        for imported in floors.imports(text, package):
            module = floors.containing_module(imported.name, texts)
            if is_runtime(name) and imported.at_once and module and not is_runtime(module):
                sentences.append(f"{name} imports {imported.name}, which a board that only runs does not have")
    assert not sentences, "\n".join(sentences)


def test_each_part_is_there(is_runtime: Callable[[str], bool]) -> None:
    for name in ("pipeline", "pipeline.workflow", "pipeline.workflow.load", "pipeline.scheduler.worker", "boards.vta"):
        assert is_runtime(name), name
    for name in ("pipeline.split", "pipeline.workflow.plan", "pipeline.executor.build", "pipeline.commands.tune"):
        assert not is_runtime(name), name
    assert {name for name in cli.COMMANDS if is_runtime(f"pipeline.commands.{name}")} == set(cli.RUNTIME_COMMANDS)


def test_both_have_one_version_and_the_same_requirements(root: Path) -> None:
    full, runtime = (_project(root, name)["project"] for name in (FULL, RUNTIME))
    assert full["version"] == runtime["version"] == VERSION
    # Whoever has one of them lacks nothing: pip would ask the public index, where nobody has registered the other.
    assert not [need for need in full["dependencies"] + runtime["dependencies"] if need.startswith(FULL)]
    # The oldest NumPy is enough where nothing is compiled, and a system's own package may be old.
    common = {each for each in runtime["dependencies"] if not each.startswith("numpy")}
    assert common < set(full["dependencies"])
    assert {each.partition(",")[2] for each in full["dependencies"] if each.startswith("numpy")} == {"<3"}
    extras = {
        name: [each.replace(RUNTIME, FULL) for each in needs]
        for name, needs in runtime["optional-dependencies"].items()
    }
    assert extras.items() <= full["optional-dependencies"].items()


def test_the_remedy_names_the_packages_of_an_extra(root: Path) -> None:
    """Never this project's own name, which pip would look for on an index."""
    extras = _project(root, FULL)["project"]["optional-dependencies"]
    command = install_command("zenoh")
    names = re.findall(r"'([\w-]+)[<>=]", command)
    # Those of the extras that it names are among them.
    assert names == ["pillow", "av", "rosbags", "eclipse-zenoh", "pyyaml"]
    assert FULL not in command
    for extra in extras:
        assert f"{FULL}[" not in install_command(extra), extra
    assert set(install_command("onnx").split("'")[1].removeprefix("onnx").split(",")) == {">=1.19", "<1.24"}


def test_an_extra_that_is_not_there_has_the_list_as_its_remedy() -> None:
    assert "pyproject.toml" in install_command("teleporter")


def test_without_an_installation_the_remedy_names_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    def miss(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "requires", miss)
    assert "pyproject.toml" in install_command("video")


def test_each_file_beside_the_modules_is_installed(root: Path) -> None:
    for package in ("pipeline", "boards"):
        full, runtime = (
            _project(root, name)["tool"]["setuptools"]["package-data"].get(package, []) for name in (FULL, RUNTIME)
        )
        files = {path for path in (root / package).rglob("*") if path.is_file() and path.suffix not in NOT_INSTALLED}
        assert files == {path for pattern in full for path in (root / package).glob(pattern)}, package
        assert files
        assert set(runtime) <= set(full)


def test_each_folder_of_modules_is_a_package(root: Path) -> None:
    folders = {path.parent for package in ("pipeline", "boards") for path in (root / package).rglob("*.py")}
    assert [str(folder) for folder in sorted(folders) if not (folder / "__init__.py").exists()] == []
