"""Tables without Rich, as on a board that only runs bundles."""

from __future__ import annotations

import pytest

from pipeline.commands.shared import plain


def test_columns_are_aligned(capsys: pytest.CaptureFixture[str]) -> None:
    table = plain.Table("Stages", ("stage", ">frames/s"))
    table.add_row("stage0", "9.5")
    table.add_row("a longer one", "1234.0")
    plain.Console().print(table, soft_wrap=True)
    assert capsys.readouterr().out.splitlines() == [
        "Stages",
        "stage         frames/s",
        "stage0             9.5",
        "a longer one    1234.0",
    ]
