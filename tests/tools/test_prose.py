"""Prose figures of source texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools import prose

SOURCE = '''"""Widths that a network has."""

LIMIT = 3
"""Of a list."""

OTHER_LIMIT = 4
"""Upper bound on items."""


class Table:
    """Rows by name."""

    rows: int = 0
    """To be counted."""

    def first(self, given: int) -> int:
        """Return what `given` says.

        That is, whichever comes first.
        """
        return [each for each in (given, self.rows)][0]


def undocumented(found):
    kept = given = found
    return kept, given
'''


@pytest.fixture
def findings() -> list[prose.Finding]:
    return list(prose.read_findings(SOURCE, "split", "pipeline/split/table.py"))


def test_first_lines_count_words_and_clauses(findings: list[prose.Finding]) -> None:
    figures = prose.count("split", findings)
    assert (figures.docstrings, figures.words_mean) == (3, round((5 + 3 + 4) / 3, 1))
    assert figures.clauses_percent == pytest.approx(66.7)


def test_docs_of_constants_begin_with_their_noun(findings: list[prose.Finding]) -> None:
    bad = [(item.text, item.place) for item in findings if item.kind == "constant" and item.bad]
    assert bad == [("Of a list.", "pipeline/split/table.py:4"), ("To be counted.", "pipeline/split/table.py:14")]
    assert prose.count("split", findings).constants == 3


def test_vague_names_are_found_wherever_they_are_bound(findings: list[prose.Finding]) -> None:
    vague = sorted(item.text for item in findings if item.kind == "name" and item.bad)
    assert vague == ["each", "found", "given", "given", "kept"]


@pytest.mark.parametrize(
    ("path", "room"),
    [
        ("pipeline/split/planning/solver/solver.py", "split"),
        ("pipeline/errors.py", "errors"),
        ("pipeline/__init__.py", "__init__"),
        ("boards/vta/isa/opcodes.py", "boards"),
    ],
)
def test_rooms(path: str, room: str) -> None:
    assert prose.room_of(Path(path)) == room


def test_table_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for room in ("split", "io"):
        (tmp_path / "pipeline" / room).mkdir(parents=True)
        (tmp_path / "pipeline" / room / "table.py").write_text(SOURCE)
    prose.main(["--root", str(tmp_path), "--worst", "1", "--json", str(tmp_path / "prose.json")])
    written = json.loads((tmp_path / "prose.json").read_text())
    assert [row["room"] for row in written["rows"]] == ["io", "split", "all"]
    assert [row["docstrings"] for row in written["rows"]] == [3, 3, 6]
    printed = capsys.readouterr().out
    assert "Widths that a network has." in printed
    assert printed.count("name ") == 1
