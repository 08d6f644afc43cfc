"""The documentation's page of Relay's operators is that of the reader, and gives a reason for the others."""

from __future__ import annotations

from pathlib import Path

from pipeline.frontends.relay.operators.table import TABLE
from tools import relay_operators


def test_the_page_is_that_of_the_reader(root: Path) -> None:
    message = "call: python tools/relay_operators.py"
    assert (root / "docs" / "relay.md").read_text(encoding="utf-8") == relay_operators.render(), message


def test_no_operator_is_both_read_and_refused() -> None:
    names = [name for names in relay_operators.REFUSED.values() for name in names.split()]
    assert len(names) == len(set(names))
    assert not set(names) & set(TABLE)


def test_the_counts_are_those_of_the_formats_table(root: Path) -> None:
    total = len(TABLE) + sum(len(names.split()) for names in relay_operators.REFUSED.values())
    text = (root / "docs" / "models.md").read_text(encoding="utf-8")
    assert f"[{len(TABLE)} of its {total} operators](relay.md)" in text
