"""Plain text in place of Rich, for boards that only run bundles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Table:
    """Rows of text below a title and column names.

    `columns`: a column whose name begins with ``>`` is aligned to the right.
    """

    def __init__(self, title: str, columns: Sequence[str]) -> None:
        self._title = title
        self._right = [column.startswith(">") for column in columns]
        self._rows = [[column.removeprefix(">") for column in columns]]

    def add_row(self, *cells: str) -> None:
        """Add one row."""
        self._rows.append(list(cells))

    def __str__(self) -> str:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, self._right, strict=True)
            ).rstrip()
            for row in self._rows
        ]
        return "\n".join([self._title, *lines])


class Console:
    """Standard output, with the only method that commands call."""

    def print(self, value: object, **_: Any) -> None:
        """Print a table or a text."""
        print(value)
