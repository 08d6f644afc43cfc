"""The floors of the house: who may import whom, checked on the source text."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import cast

import pytest

TVM = ("tvm", "tvm_ffi")
# TVM is touched in few places, so that its next release is a small change.
TVM_PLACES = (
    "boards.vta", "pipeline.model", "pipeline.frontends", "pipeline.split", "pipeline.export", "pipeline.executor",
    "pipeline.measure", "pipeline.quantization.relax_powers", "pipeline.remote.rpc_device",
    "pipeline.remote.rpc_session", "pipeline.tvm",
)  # fmt: skip
EXTRAS = (
    "ai_edge_litert", "av", "cryptography", "cyclonedds", "gi", "matplotlib", "ncnn", "onnx", "onnxruntime", "openvino",
    "paho", "prometheus_client", "ray", "rclpy", "rosbags", "sklearn", "tflite", "torch", "tornado", "yaml", "zenoh",
)  # fmt: skip
EXTRAS_PLACES = ("pipeline.cluster.actor", "pipeline.frontends", "pipeline.demo", "pipeline.observe.web.site")
FLOORS: tuple[tuple[str, ...], ...] = (
    ("pipeline.errors",),
    ("pipeline.system",),
    ("pipeline.core",),
    # Its functions for stages unpack models.
    ("pipeline.tvm",),
    ("pipeline.prediction", "pipeline.comparison"),
    ("pipeline.model",),
    ("pipeline.frontends",),
    ("pipeline.split",),
    ("pipeline.export", "pipeline.executor", "boards"),
    # Pictures are prepared by kernels, compiled and kept like a stage's.
    ("pipeline.remote", "pipeline.scheduler", "pipeline.picture"),
    ("pipeline.simulation", "pipeline.observe", "pipeline.measure"),
    ("pipeline.workflow", "pipeline.cluster"),
    ("pipeline.io",),
    # It names GStreamer's elements, and what brings them.
    ("pipeline.app", "pipeline.doctor"),
    # The package's own module: the public names.
    ("pipeline",),
    ("pipeline.quantization", "pipeline.demo"),
    ("pipeline.ros",),
    ("pipeline.commands",),
    ("pipeline.cli",),
)
"""Rooms from the ground up: a room imports only from floors below its own, and from itself."""

INNER_ROOMS: dict[str, tuple[str, ...]] = {
    "boards": ("vta",),
    "boards.vta": ("compiler", "driver", "isa", "lowering", "simulator"),
    "pipeline.executor": ("devices", "kernels", "tuning"),
    "pipeline.executor.kernels": ("layout", "quantized", "rows", "tiles", "tir", "winograd"),
    "pipeline.frontends": ("cards", "onnx", "operators", "relax", "relay", "tflite", "torch"),
    "pipeline.io": ("decoders", "sinks", "sources"),
    "pipeline.split": ("planning",),
    "pipeline.split.planning": ("advice", "borrowing", "orders", "problem", "solver"),
}
"""Rooms that are too large to be without folders of their own, and these."""

MOST_FILES = 60
MOST_LINES = 9_000
"""Size of a room, or of what lies in it beside its inner rooms."""

SIDEWAYS = {
    # A board's accelerator is a kind of device, and the board of this machine is found out by looking.
    ("boards", "pipeline.executor"),
}
"""Rooms that import from one on their own floor."""

NEVER = {
    "pipeline.scheduler": (*TVM, "pipeline.split", "pipeline.executor.build"),
    "pipeline.split.planning": (*TVM, "threading", "concurrent.futures"),
}
"""What a room does not import, although its floor would let it."""

PROJECT = ("pipeline", "boards")
IMPORTING_CALLS = ("import_module", "__import__", "require")


@dataclass(frozen=True)
class Import:
    """A module that a source text imports, and whether that happens as soon as the text is run."""

    name: str
    at_once: bool


def inside(name: str, modules: tuple[str, ...]) -> bool:
    """Tell if `name` is one of the modules or lies in one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


@cache
def imports(source: str, package: str) -> tuple[Import, ...]:
    """Return all imports of a text, also in functions, under TYPE_CHECKING, and by name in a call."""
    imported, nodes = [], [(cast("ast.AST", ast.parse(source)), True)]
    for node, at_once in nodes:
        imported += [Import(name, at_once) for name in _names(node, package)]
        body = getattr(node, "body", ()) if _is_delayed(node) else ()
        delayed = set(map(id, body if isinstance(body, list) else [body]))
        nodes += [(child, at_once and id(child) not in delayed) for child in ast.iter_child_nodes(node)]
    return tuple(imported)


def _is_delayed(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.unparse(node.test)
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _names(node: ast.AST, package: str) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = package.split(".")[: len(package.split(".")) + 1 - node.level] if node.level else []
        module = ".".join([*base, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and _last_name(node.func) in IMPORTING_CALLS:
        yield from (str(value.value) for value in node.args[:1] if isinstance(value, ast.Constant))


def _last_name(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def floor(name: str) -> int:
    """Return on which floor a module stands, by the longest of the names there that it lies in."""
    floors = [(len(room), number) for number, rooms in enumerate(FLOORS) for room in rooms if inside(name, (room,))]
    return max(floors)[1]


def room_of(name: str) -> str:
    """Return the room that a module lies in; that of a loose one is its own name."""
    return max((room for rooms in FLOORS for room in rooms if inside(name, (room,))), key=len)


def violations(module: str, source: str, package: str | None = None) -> list[str]:
    """Return what is wrong with the imports of one module, each as a sentence."""
    sentences = []
    for imported in imports(source, package or module.rpartition(".")[0]):
        name = imported.name
        if inside(name, PROJECT) and (arrow := _arrow(module, name)):
            sentences.append(f"{module} imports {name}, which is {arrow}")
        if any(inside(module, (room,)) and inside(name, never) for room, never in NEVER.items()):
            sentences.append(f"{module} imports {name}, which its room never does")
        if inside(name, TVM) and not inside(module, TVM_PLACES):
            sentences.append(f"{module} imports {name}; only {', '.join(TVM_PLACES)} touch TVM")
        if inside(name, EXTRAS) and imported.at_once and not inside(module, EXTRAS_PLACES):
            sentences.append(f"{module} imports the extra {name} at module level; do it where it is used")
    return sentences


def _arrow(module: str, name: str) -> str:
    """Return how an import leaves the order of floors, empty if it does not."""
    importer_room, imported_room = room_of(module), room_of(name)
    if importer_room == imported_room:
        return ""
    if floor(name) > floor(module):
        return f"on a floor above, {imported_room}"
    if floor(name) == floor(module) and (importer_room, imported_room) not in SIDEWAYS:
        return f"beside it, {imported_room}"
    return ""


def modules(root: Path) -> dict[str, tuple[str, str]]:
    """Return the package and the text of each module of the project, by its name."""
    files = sorted([*(root / "pipeline").rglob("*.py"), *(root / "boards").rglob("*.py")])
    texts = {}
    for file in files:
        parts = file.relative_to(root).with_suffix("").parts
        package = ".".join(parts[:-1])
        texts[package if parts[-1] == "__init__" else ".".join(parts)] = package, file.read_text(encoding="utf-8")
    return texts


def test_every_module_keeps_the_floors(root: Path) -> None:
    texts = modules(root)
    assert len(texts) > 400
    sentences = [line for name, (package, text) in texts.items() for line in violations(name, text, package)]
    assert not sentences, "\n".join(sentences)


def test_every_module_stands_in_a_room(root: Path) -> None:
    rooms = [room for rooms in FLOORS for room in rooms]
    loose = {name for name in modules(root) if name.count(".") == 1 and name.startswith("pipeline.")}
    assert loose == {room for room in rooms if room.startswith("pipeline.")}


def test_rooms_are_small_or_divided(root: Path) -> None:
    texts = modules(root)
    rooms = [room for rooms in FLOORS for room in rooms if room != "pipeline"]
    inner = {f"{room}.{name}" for room, names in INNER_ROOMS.items() for name in names}
    sizes = {room: [0, 0] for room in (*rooms, *inner)}
    for name, (_, text) in texts.items():
        room = max((room for room in sizes if inside(name, (room,))), key=len, default="")
        if room:
            sizes[room][0] += 1
            sizes[room][1] += text.count("\n")
    assert all(files for files, _ in sizes.values()), "a room of the lists is not there"
    crowded = {room: size for room, size in sizes.items() if size[0] > MOST_FILES or size[1] > MOST_LINES}
    assert not crowded


def test_no_module_imports_itself_by_way_of_others(root: Path) -> None:
    """Nor in a function, nor for types: whoever reads one module would have to know the other first."""
    texts = modules(root)
    arrows = {
        name: {target for one in imports(text, package) if (target := containing_module(one.name, texts)) != name}
        for name, (package, text) in texts.items()
    }
    # What imports nothing that is left stands on the ground; whatever can never be taken away goes round.
    while ground := [name for name, targets in arrows.items() if not targets & arrows.keys()]:
        for name in ground:
            del arrows[name]
    assert not arrows


def containing_module(name: str, texts: Mapping[str, object]) -> str:
    """Return the module that an import's name means: the name may be something in it."""
    while name and name not in texts:
        name = name.rpartition(".")[0]
    return name


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pipeline.scheduler.worker", "import tvm"),
        ("pipeline.scheduler.worker", "from tvm import relax"),
        ("pipeline.scheduler.worker", "def late():\n    import tvm.runtime as runtime"),
        ("pipeline.scheduler.worker", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import tvm_ffi"),
        ("pipeline.scheduler.worker", "from pipeline.split.graph import Graph"),
        ("pipeline.scheduler.worker", "from pipeline import split"),
        ("pipeline.scheduler.worker", "from pipeline.executor import build"),
        ("pipeline.scheduler.worker", "from ..remote import device"),
        ("pipeline.scheduler.worker", "import pipeline"),
        ("pipeline.scheduler.worker", "from pipeline.workflow.verify import verify"),
        ("pipeline.scheduler.worker", "import importlib\nimportlib.import_module('pipeline.split.cuts')"),
        ("pipeline.executor.build", "from pipeline.scheduler.pipeline import Pipeline"),
        ("pipeline.executor.build", "class A:\n    def b(self):\n        from pipeline import scheduler"),
        ("pipeline.executor.build", "import boards"),
        ("pipeline.split.cuts", "from pipeline.executor.devices.base import DeviceRuntime"),
        ("pipeline.split.planning.solver.solver", "import tvm"),
        ("pipeline.split.planning.solver.solver", "import threading"),
        ("pipeline.core.plan.plan", "import tvm"),
        ("pipeline.core.plan.plan", "from pipeline.split import cuts"),
        ("pipeline.cli", "def main():\n    import tvm"),
        ("pipeline.measure.profile", "def late():\n    import pipeline"),
        ("pipeline.io.stream", "from pipeline.ros import node"),
        ("pipeline.observe.timeline", "import matplotlib.pyplot as plt"),
        (
            "pipeline.observe.timeline",
            "from pipeline.system.optional import require\nrequire('av', 'video', '')",
        ),
        ("pipeline.split.graph", "try:\n    import onnx\nexcept ImportError:\n    pass"),
    ],
)
def test_a_violation_is_seen(module: str, source: str) -> None:
    assert len(violations(module, source)) >= 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("pipeline.scheduler.worker", "from pipeline.executor.devices.base import DeviceRuntime"),
        ("pipeline.scheduler.worker", "from pipeline.core.plan.plan import Plan\nimport tvmlike"),
        ("pipeline.split.graph", "import tvm"),
        ("pipeline.frontends.onnx.importer", "import onnx"),
        ("pipeline.executor.build", "from tvm import relax"),
        ("boards.vta.device", "from pipeline.executor.devices.base import DeviceRuntime"),
        ("pipeline.observe.timeline", "def draw():\n    import matplotlib.figure"),
        ("pipeline.observe.timeline", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import matplotlib"),
        ("pipeline.demo.detector", "import pipeline\nfrom pipeline.scheduler.trace import Trace"),
    ],
)
def test_what_is_allowed_is_not_a_violation(module: str, source: str) -> None:
    assert violations(module, source) == []


def test_an_import_in_the_else_of_type_checking_is_at_once() -> None:
    source = "if TYPE_CHECKING:\n    import torch\nelse:\n    import onnx"
    assert [(each.name, each.at_once) for each in imports(source, "")] == [("torch", False), ("onnx", True)]


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("pipeline", (*TVM, *EXTRAS, "rich", "pipeline.split", "pipeline.executor", "pipeline.scheduler")),
        ("pipeline.scheduler.pipeline", (*TVM, *EXTRAS)),
        ("pipeline.demo", (*TVM, *EXTRAS)),
        ("pipeline.observe.timeline", (*TVM, *EXTRAS)),
    ],
)
def test_importing_stays_light(module: str, unwanted: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print(*[name for name in {unwanted!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (result.returncode, result.stderr, result.stdout.split()) == (0, "", [])
