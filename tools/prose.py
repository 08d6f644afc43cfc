"""Prose figures per room: docstrings' first lines, constants' docs, and names.

A look, not a gate: the figures show where sentences are long, not which sentence is bad.

    python tools/prose.py                      # a table, a line per room, and the worst places
    python tools/prose.py --room split --worst 40
    python tools/prose.py --json prose.json
"""

from __future__ import annotations

import argparse
import ast
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOUSES = ("pipeline", "boards")
"""Folders that are read."""

CLAUSE = re.compile(r"\b(?:what|that|which|those|whose|whom|whether)\b", re.IGNORECASE)
"""Words that open a relative clause."""

BAD_STARTS = ("Of", "That", "To", "By", "So", "What")
"""First words of a constant's doc without its noun."""

VAGUE_NAMES = {
    "found", "made", "each", "kept", "told", "given", "known", "wanted", "own", "other", "others", "one",
    "left", "fresh", "there", "here", "whole", "rest", "what", "these", "them", "seen", "came", "lie", "way",
    "ways", "place", "places", "mine", "both", "many", "most", "least", "behind", "before", "after", "at",
    "inside", "outside",
}  # fmt: skip
"""Names that say nothing without the lines around them: pronouns, participles, adjectives."""

KINDS = ("line", "constant", "name")
DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True)
class Finding:
    """A text or name of a source file.

    Parameters
    ----------
    kind
        "line" for a docstring's first line, "constant" for a constant's doc, "name" for a bound name.
    weight
        Words of a text; 1 for a name.
    bad
        Text with a relative clause, constant's doc without its noun, or vague name.
    """

    kind: str
    room: str
    place: str
    text: str
    weight: int
    bad: bool


@dataclass(frozen=True)
class RoomFigures:
    """Prose figures of one room."""

    room: str
    docstrings: int
    words_mean: float
    clauses_percent: float
    constants: int
    constants_bad: int
    names: int
    names_vague: int

    @property
    def vague_percent(self) -> float:
        """Share of vague names."""
        return round(100 * self.names_vague / max(self.names, 1), 2)


def room_of(file: Path) -> str:
    """Room of a file, relative to the root: the folder in `pipeline`, or `boards`."""
    house, *inner = file.with_suffix("").parts
    return inner[0] if house == "pipeline" and inner else house


def read_findings(source: str, room: str, path: str) -> Iterator[Finding]:
    """Yield the texts and names of one source file."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, *DEFINITIONS)) and (text := ast.get_docstring(node)):
            line, place = text.splitlines()[0], f"{path}:{node.body[0].lineno}"
            yield Finding("line", room, place, line, len(line.split()), bool(CLAUSE.search(line)))
        if isinstance(node, (ast.Module, ast.ClassDef)):
            for statement, text in _constants(node):
                bad = text.split(maxsplit=1)[0] in BAD_STARTS
                yield Finding("constant", room, f"{path}:{statement.lineno}", text.strip(), len(text.split()), bad)
        for name, line_number in _bound_names(node):
            yield Finding("name", room, f"{path}:{line_number}", name, 1, name.strip("_") in VAGUE_NAMES)


def _constants(node: ast.Module | ast.ClassDef) -> Iterator[tuple[ast.stmt, str]]:
    for statement, doc in zip(node.body, node.body[1:], strict=False):
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)) or not isinstance(doc, ast.Expr):
            continue
        if isinstance(doc.value, ast.Constant) and isinstance(doc.value.value, str):
            yield doc, doc.value.value


def _bound_names(node: ast.AST) -> list[tuple[str, int]]:
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return [(node.id, node.lineno)]
    if isinstance(node, ast.arg):
        return [(node.arg, node.lineno)]
    return [(node.name, node.lineno)] if isinstance(node, DEFINITIONS) else []


def read_tree(root: Path) -> list[Finding]:
    """Texts and names of all source files below `root`."""
    files = sorted(file for house in HOUSES for file in (root / house).rglob("*.py"))
    parts = [(file.relative_to(root), file.read_text(encoding="utf-8")) for file in files]
    return [finding for path, text in parts for finding in read_findings(text, room_of(path), str(path))]


def count(room: str, findings: Sequence[Finding]) -> RoomFigures:
    """Figures of a room's texts and names."""
    lines, constants, names = ([finding for finding in findings if finding.kind == kind] for kind in KINDS)
    total = max(len(lines), 1)
    return RoomFigures(
        room,
        docstrings=len(lines),
        words_mean=round(sum(line.weight for line in lines) / total, 1),
        clauses_percent=round(100 * sum(line.bad for line in lines) / total, 1),
        constants=len(constants),
        constants_bad=sum(constant.bad for constant in constants),
        names=len(names),
        names_vague=sum(name.bad for name in names),
    )


def count_rooms(findings: Sequence[Finding]) -> list[RoomFigures]:
    """Figures per room in alphabetical order, the sum at the end."""
    rooms = sorted({finding.room for finding in findings})
    figures = [count(room, [finding for finding in findings if finding.room == room]) for room in rooms]
    return [*figures, count("all", findings)]


def worst_places(findings: Sequence[Finding], number: int) -> list[Finding]:
    """Longest first lines with a clause, longest docs without a noun, and some vague names: `number` per kind."""
    bad = sorted((finding for finding in findings if finding.bad), key=lambda finding: -finding.weight)
    return [finding for kind in KINDS for finding in [item for item in bad if item.kind == kind][:number]]


def print_table(figures: Sequence[RoomFigures]) -> None:
    """Print a line per room."""
    print(
        f"{'room':<14}{'docstrings':>11}{'words':>7}{'clauses':>9}{'constants':>11}{'bad':>5}{'names':>8}{'vague':>15}"
    )
    for row in figures:
        vague = f"{row.names_vague} {row.vague_percent:5.2f} %"
        print(
            f"{row.room:<14}{row.docstrings:>11}{row.words_mean:>7}{row.clauses_percent:>7} %"
            f"{row.constants:>11}{row.constants_bad:>5}{row.names:>8}{vague:>15}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures and the worst places."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=ROOT, help="folder of the houses (default: this repository)")
    parser.add_argument("--room", action="append", help="only this room; can be repeated")
    parser.add_argument("--worst", type=int, default=5, metavar="N", help="places shown per kind (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="file for figures and worst places")
    options = parser.parse_args(arguments)
    findings = [item for item in read_tree(options.root) if not options.room or item.room in options.room]
    figures, worst = count_rooms(findings), worst_places(findings, options.worst)
    print_table(figures)
    for finding in worst:
        print(f"{finding.kind:<9} {finding.place}: {finding.text.splitlines()[0]}")
    if options.json:
        rows = [asdict(row) for row in figures]
        options.json.write_text(json.dumps({"rows": rows, "worst": [asdict(item) for item in worst]}, indent=1))


if __name__ == "__main__":
    main()
