"""The documentation's table of Relay's operators says what is read, and how many."""

from __future__ import annotations

import re
from pathlib import Path

from pipeline.frontends.relay.operators.table import TABLE


def test_the_table_of_operators_is_that_of_the_reader(root: Path) -> None:
    text = (root / "docs" / "models.md").read_text()
    rows = dict(re.findall(r"^\| `([\w.]+)` \| (yes|no) \|", text, re.MULTILINE))
    assert {name for name, read in rows.items() if read == "yes"} == set(TABLE)
    assert list(rows) == sorted(rows)
    counts = re.search(r"Of the (\d+) names .* (\d+) are read", text)
    assert counts is not None
    assert [int(each) for each in counts.groups()] == [len(rows), len(TABLE)]


def test_what_is_not_read_has_a_reason(root: Path) -> None:
    text = (root / "docs" / "models.md").read_text()
    assert not re.findall(r"^\| `([\w.]+)` \| no \| *\|$", text, re.MULTILINE)
