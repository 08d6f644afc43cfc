"""The rooms of the package stay apart: who may import whom, checked on the source text."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

TVM = ("tvm", "tvm_ffi")
# TVM is touched in few places, so that its next release is a small change.
TVM_PLACES = ("pipeline.split", "pipeline.executor", "pipeline.tvm_access")
EXTRAS = (
    "ai_edge_litert", "av", "cyclonedds", "matplotlib", "onnx", "onnxruntime", "prometheus_client", "rclpy", "rosbags",
    "sklearn", "tflite", "torch", "tornado", "yaml", "zenoh",
)  # fmt: skip
EXTRAS_PLACES = ("pipeline.split.frontends", "pipeline.demo", "pipeline.web.site")
# The front door imports every room, so a room that came in through it would reach all others.
FRONT = ("pipeline.api", "pipeline.cli", "pipeline.demo")
ROOMS = ("pipeline.split", "pipeline.executor", "pipeline.scheduler")
IMPORTING_CALLS = ("import_module", "__import__", "require")


@dataclass(frozen=True)
class Import:
    """A module that a source text imports, and whether that happens as soon as the text is run."""

    name: str
    at_once: bool


@dataclass(frozen=True)
class Rule:
    """The modules that those inside `who` never import, except those inside `but`."""

    who: str
    never: tuple[str, ...]
    but: tuple[str, ...] = ()


RULES = (
    Rule("pipeline.scheduler", (*TVM, "pipeline.split", "pipeline.executor"), but=("pipeline.executor.devices",)),
    Rule("pipeline.executor", ("pipeline.scheduler", "pipeline.split")),
    Rule("pipeline.split", ("pipeline.executor", "pipeline.scheduler")),
    *(Rule(room, FRONT) for room in ROOMS),
)


def inside(name: str, modules: tuple[str, ...]) -> bool:
    """Whether `name` is one of the modules or lies in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def imports(source: str, package: str) -> Iterator[Import]:
    """Yield all imports of a text, also in functions, under TYPE_CHECKING, and by name in a call."""
    tree = ast.parse(source)
    later = {id(inner) for node in ast.walk(tree) if _delayed(node) for inner in _body(node)}
    for node in ast.walk(tree):
        for name in _names(node, package):
            yield Import(name, id(node) not in later)


def _delayed(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _body(node: ast.AST) -> Iterator[ast.AST]:
    body = node.body if isinstance(node, (ast.If, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) else []
    for statement in body if isinstance(body, list) else [body]:
        yield from ast.walk(statement)


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in IMPORTING_CALLS:
        yield from (str(value.value) for value in node.args[:1] if isinstance(value, ast.Constant))


def violations(module: str, source: str, package: str | None = None) -> list[str]:
    """Return what is wrong with the imports of one module, each as a sentence."""
    found = []
    for each in imports(source, package or module.rpartition(".")[0]):
        if any(_broken(rule, module, each.name) for rule in RULES):
            found.append(f"{module} imports {each.name}, which its room may not")
        if inside(module, ROOMS) and each.name == "pipeline":
            found.append(f"{module} imports the whole of pipeline; name the module meant")
        if inside(each.name, TVM) and not inside(module, TVM_PLACES):
            found.append(f"{module} imports {each.name}; only {', '.join(TVM_PLACES)} touch TVM")
        if inside(each.name, EXTRAS) and each.at_once and not inside(module, EXTRAS_PLACES):
            found.append(f"{module} imports the extra {each.name} at module level; do it where it is used")
    return found


def _broken(rule: Rule, module: str, name: str) -> bool:
    return inside(module, (rule.who,)) and inside(name, rule.never) and not inside(name, rule.but)


def test_every_module_keeps_the_rules(root: Path) -> None:
    files = sorted((root / "pipeline").rglob("*.py"))
    assert len(files) > 10
    found = []
    for file in files:
        parts = file.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        module = package if parts[-1] == "__init__" else ".".join(parts)
        found += violations(module, file.read_text(encoding="utf-8"), package)
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pipeline.scheduler.worker", "import tvm"),
        ("pipeline.scheduler.worker", "from tvm import relax"),
        ("pipeline.scheduler.worker", "def late():\n    import tvm.runtime as runtime"),
        ("pipeline.scheduler.worker", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tvm_ffi"),
        ("pipeline.scheduler.worker", "from pipeline.split.graph import Graph"),
        ("pipeline.scheduler.worker", "from pipeline import split"),
        ("pipeline.scheduler.worker", "from pipeline.executor.bundle import Bundle"),
        ("pipeline.scheduler.worker", "from pipeline.executor import build"),
        ("pipeline.scheduler.worker", "from ..executor import bundle"),
        ("pipeline.scheduler.worker", "import pipeline"),
        ("pipeline.scheduler.worker", "from pipeline.api import read"),
        ("pipeline.scheduler.worker", "import importlib\nimportlib.import_module('pipeline.split.cuts')"),
        ("pipeline.executor.build", "from pipeline.scheduler.pipeline import Pipeline"),
        ("pipeline.executor.build", "class A:\n    def b(self):\n        from pipeline import scheduler"),
        ("pipeline.split.cuts", "from pipeline.executor.devices.base import DeviceRuntime"),
        ("pipeline.split.cuts", "from pipeline.scheduler import frame"),
        ("pipeline.plans", "import tvm"),
        ("pipeline.cli", "def main():\n    import tvm"),
        ("pipeline.timeline", "import matplotlib.pyplot as plt"),
        ("pipeline.timeline", "from pipeline.extras import require\nfigure = require('matplotlib.figure', 'demo', '')"),
        ("pipeline.split.graph", "try:\n    import onnx\nexcept ImportError:\n    pass"),
    ],
)
def test_a_violation_is_found(module: str, source: str) -> None:
    assert len(violations(module, source)) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pipeline.scheduler.worker", "from pipeline.executor.devices.base import DeviceRuntime"),
        ("pipeline.scheduler.worker", "from pipeline.executor import devices"),
        ("pipeline.scheduler.worker", "from pipeline.plans import Plan\nimport tvmlike"),
        ("pipeline.split.graph", "import tvm"),
        ("pipeline.split.frontends.onnx_file", "import onnx"),
        ("pipeline.executor.build", "from tvm import relax"),
        ("pipeline.timeline", "def draw():\n    import matplotlib.figure"),
        ("pipeline.timeline", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import matplotlib"),
        ("pipeline.demo.stream", "import pipeline\nfrom pipeline.scheduler.trace import Trace"),
    ],
)
def test_what_is_allowed_is_not_found(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_an_import_in_the_else_of_type_checking_is_at_once() -> None:
    source = "if TYPE_CHECKING:\n    import torch\nelse:\n    import onnx"
    assert [(each.name, each.at_once) for each in imports(source, "")] == [("torch", False), ("onnx", True)]


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("pipeline", (*TVM, *EXTRAS, "rich", "pipeline.split", "pipeline.executor", "pipeline.scheduler")),
        ("pipeline.scheduler.pipeline", (*TVM, *EXTRAS)),
        ("pipeline.demo", (*TVM, *EXTRAS)),
        ("pipeline.timeline", (*TVM, *EXTRAS)),
    ],
)
def test_importing_stays_light(module: str, absent: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*[name for name in {absent!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr, done.stdout.split()) == (0, "", [])
