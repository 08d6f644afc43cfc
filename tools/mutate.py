"""Mutations: small faults in a copy of the tree, one at a time, and those of them that no test notices.

    python tools/mutate.py pipeline/scheduler --count 20 --seed 3

A fault swaps an operator, moves a number by one, or drops a statement.  For each one the tests run that bear the
module's name or import it, and then those of the mirrored folder.  Exit status: 0, or 1 if a fault survived.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import itertools
import json
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).resolve().parents[1]
NOT_COPIED = (".*", "__pycache__", "build", "dist", "site", "bench-output", "*.egg-info", "*.bundle")

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip
"""Operators and what takes their place."""

NAMES = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any"}
"""Functions and what takes their place."""


@dataclass(frozen=True)
class Change:
    """A fault: bytes of a file, and what stands there instead."""

    file: str
    line: int
    begin: int
    end: int
    before: str
    after: str

    def apply(self, source: bytes) -> bytes:
        """Return the text with the fault."""
        return source[: self.begin] + self.after.encode() + source[self.end :]

    def __str__(self) -> str:
        """Return the place and the change on one line."""
        return f"{self.file}:{self.line}: {' '.join(self.before.split())}  ->  {self.after}"


@dataclass(frozen=True)
class Trial:
    """A fault and its end: "killed", "late", "survived", or "no tests" if they fail without it as well."""

    change: Change
    result: str
    seconds: float
    tests: tuple[str, ...]


def changes(file: str, source: bytes) -> list[Change]:
    """List all faults that a file may get, in its order."""
    lines = [0, 0, *itertools.accumulate(len(line) for line in source.splitlines(keepends=True))]
    faults = []
    for node in _code(ast.parse(source)):
        begin = lines[node.lineno] + node.col_offset
        end = lines[node.end_lineno or node.lineno] + (node.end_col_offset or 0)
        before = source[begin:end].decode()
        faults += [Change(file, node.lineno, begin, end, before, after) for after in _replacements(node)]
    return faults


def _code(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield what is computed: no annotation, no text, nothing for type checkers."""
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node
    for name, value in ast.iter_fields(node):
        if name not in {"annotation", "returns", "decorator_list"}:
            for inner in value if isinstance(value, list) else [value]:
                if isinstance(inner, ast.AST):
                    yield from _code(inner)


def _replacements(node: ast.expr | ast.stmt) -> Iterator[str]:
    if _is_droppable(node):
        yield "pass"
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        yield str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield f"({ast.unparse(node.operand)})"
    elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
        prefix, dot, name = ast.unparse(node).rpartition(".")
        if name in NAMES:
            yield prefix + dot + NAMES[name]
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in SWAPS and not _is_type(node):
        yield _with_operator(node, "op", SWAPS[type(node.op)]())
    elif isinstance(node, ast.Compare):
        for place, operator in enumerate(node.ops):
            ops = [*node.ops[:place], SWAPS[type(operator)](), *node.ops[place + 1 :]]
            yield _with_operator(node, "ops", ops)


def _is_droppable(node: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):  # without a name, Python itself would notice
        return all(isinstance(target, (ast.Attribute, ast.Subscript)) for target in node.targets)
    return isinstance(node, (ast.AugAssign, ast.Raise, ast.Continue, ast.Break, ast.Delete))


def _is_type(node: ast.AST) -> bool:
    """Tell if a union is one of types, such as ``int | None``."""
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr) and ast.unparse(node).endswith("None")


def _with_operator(node: ast.expr, field: str, operator: object) -> str:
    mutant = copy.copy(node)
    setattr(mutant, field, operator)
    # Parentheses, since the new operator may bind less.
    return f"({ast.unparse(mutant)})"


def nearest_tests(root: Path, file: str) -> list[tuple[str, ...]]:
    """Choose tests of a module, the nearest first: those of its name and those that import it, then its folder's."""
    path = Path(file)
    module = ".".join(path.with_suffix("").parts)
    mirror = root / Path("tests", *(path.parts[1:] if path.parts[0] == "pipeline" else path.parts)).parent
    room = root / Path(*mirror.relative_to(root).parts[:2])
    imports = (f"from {module} import", f"from {module.rpartition('.')[0]} import {path.stem}")
    tests = sorted((root / "tests").rglob("test_*.py"))
    named = [test for test in tests if test == mirror / f"test_{path.stem}.py"]
    importing = [test for test in tests if any(text in test.read_text(encoding="utf-8") for text in imports)]
    while not mirror.is_dir():
        mirror = mirror.parent
    # Tests of other rooms only where nothing is nearer.
    nearest = named + [test for test in importing if test not in named and room in test.parents] or importing
    choices = [nearest, [mirror]] if nearest else [[mirror]]
    return [tuple(str(test.relative_to(root)) for test in choice) for choice in choices]


class Laboratory:
    """A copy of the tree, in which one file at a time is wrong.

    Parameters
    ----------
    root : Path
        The copy.
    timeout_s : float
        Upper bound on a run of tests.
    tests : sequence of str
        What runs for every fault; empty for the nearest tests of its file.
    """

    def __init__(self, root: Path, timeout_s: float, tests: Sequence[str] = ()) -> None:
        self._root, self._timeout_s, self._tests = root, timeout_s, tuple(tests)
        # Seconds of each choice of tests without a fault.
        self._baselines: dict[tuple[str, ...], float] = {}

    def try_out(self, change: Change) -> Trial:
        """Run the tests of a file with a fault in it, from near to far, until one notices."""
        trial = Trial(change, "no tests", 0.0, ())
        for tests in [self._tests] if self._tests else nearest_tests(self._root, change.file):
            if tests not in self._baselines:
                result, seconds = self._run(tests, self._timeout_s)
                # Of tests that fail anyway there is nothing to learn.
                self._baselines[tests] = seconds if result == "survived" else math.inf
            if math.isfinite(self._baselines[tests]):
                trial = self._try_with(change, tests, min(self._timeout_s, 10 + 3 * self._baselines[tests]))
            if trial.result in {"killed", "late"}:
                break
        return trial

    def _try_with(self, change: Change, tests: tuple[str, ...], timeout_s: float) -> Trial:
        path = self._root / change.file
        source = path.read_bytes()
        try:
            _write(path, change.apply(source))
            result, seconds = self._run(tests, timeout_s)
        finally:
            _write(path, source)
        return Trial(change, result, round(seconds, 1), tests)

    def _run(self, tests: Sequence[str], timeout_s: float) -> tuple[str, float]:
        options = ["-x", "-q", "-p", "no:cacheprovider", "--no-header", "-m", "not slow"]
        begin = perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *options, *tests],
            cwd=self._root,
            env=os.environ | {"PYTHONPATH": str(self._root)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            result = "killed" if process.wait(timeout_s) else "survived"
        except subprocess.TimeoutExpired:
            result = "late"
        finally:
            # With all that the tests have started.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return result, perf_counter() - begin


def _write(path: Path, source: bytes) -> None:
    path.write_bytes(source)
    # Python tells compiled files by seconds and size, and a fault has both in common with the next one.
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def sample(root: Path, paths: Sequence[str], count: int, seed: int) -> list[Change]:
    """Pick faults by chance from files and from all files of folders."""
    files = sorted(
        {file for path in paths for file in ([root / path] if path.endswith(".py") else (root / path).rglob("*.py"))}
    )
    faults = [fault for file in files for fault in changes(str(file.relative_to(root)), file.read_bytes())]
    chosen = random.Random(seed).sample(faults, min(count, len(faults)))
    return sorted(chosen, key=lambda fault: (fault.file, fault.begin))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="files or folders, from the root of the project")
    parser.add_argument("--count", type=int, default=10, metavar="N", help="how many faults (10)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="another choice of them (0)")
    parser.add_argument("--tests", nargs="+", default=[], metavar="PATH", help="tests instead of the nearest ones")
    parser.add_argument("--timeout", type=float, default=300, metavar="S", help="seconds for a run of tests (300)")
    parser.add_argument("--list", action="store_true", help="show the faults, and try none")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write all trials to FILE")
    options = parser.parse_args(arguments)
    faults = sample(ROOT, options.paths, options.count, options.seed)
    if options.list:
        print(*faults, sep="\n")
        return 0
    trials = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = Path(folder, "tree")
        shutil.copytree(ROOT, root, symlinks=True, ignore=shutil.ignore_patterns(*NOT_COPIED))
        laboratory = Laboratory(root, options.timeout, options.tests)
        for fault in faults:
            trials.append(laboratory.try_out(fault))
            print(f"{trials[-1].result:9}{trials[-1].seconds:6.1f} s  {fault}", flush=True)
    survivors = sum(trial.result == "survived" for trial in trials)
    print(f"{survivors} of {len(trials)} survived")
    if options.json:
        options.json.write_text(json.dumps([asdict(trial) for trial in trials], indent=1) + "\n")
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
