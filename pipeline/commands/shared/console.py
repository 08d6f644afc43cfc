"""Console: tables, progress, notices and JSON of all commands."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, TextIO

import msgspec

from pipeline.commands.shared import plain
from pipeline.system.optional import is_installed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from pipeline.prediction.uncertainty import RateRange

Progress = Callable[[str], None]

# Tables keep their columns when they are piped into a file or another program.
PIPED_WIDTH = 160


def console() -> Console:
    """Return a console for results."""
    if not is_installed("rich"):
        # A board that only runs bundles: what it prints is the same, without frames and colours.
        return plain.Console()  # type: ignore[return-value]
    from rich.console import Console

    class PipedConsole(Console):
        def on_broken_pipe(self) -> None:
            # Instead of leaving with status 1: a reader who has seen enough is no failure, and `cli.main` knows it.
            raise BrokenPipeError

    # None if the caller has closed it.
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    width = None if is_terminal else PIPED_WIDTH
    # Names of operators and files may have brackets and colons.
    return PipedConsole(width=width, highlight=False, markup=False, emoji=False)


def can_draw() -> bool:
    """Test for a terminal and a library to draw progress."""
    # Standard error, which is the terminal also where results are piped.
    return sys.stderr is not None and sys.stderr.isatty() and is_installed("rich")


def notice(text: str) -> None:
    """Print a line besides results, kept out of pipes."""
    print(text, file=sys.stderr)


@contextlib.contextmanager
def progress(text: str) -> Iterator[Progress]:
    """Show current work on a terminal, silent elsewhere."""
    if not can_draw():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.status import Status

    with Status(text, console=Console(stderr=True)) as status:
        yield status.update


def print_json(value: object, out: TextIO | None = None) -> None:
    """Print plain values as JSON, by default to standard output."""
    try:
        data = msgspec.json.encode(value, enc_hook=_plain)
    except UnicodeEncodeError:  # the name of a file that is no UTF-8
        data = msgspec.json.encode(_in_utf8(msgspec.to_builtins(value, enc_hook=_plain)))
    print(msgspec.json.format(data, indent=2).decode(), file=out)


def _in_utf8(value: object) -> object:
    if isinstance(value, dict):
        return {_in_utf8(key): _in_utf8(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_utf8(item) for item in value]
    return value.encode("utf-8", "backslashreplace").decode() if isinstance(value, str) else value


def _plain(value: object) -> object:
    if isinstance(value, Mapping):  # a read-only view, which msgspec does not know
        return dict(value)
    raise NotImplementedError


def table(title: str, *columns: str) -> Table:
    """Return a table; names of right-aligned columns begin with ``>``."""
    if not is_installed("rich"):
        return plain.Table(title, columns)  # type: ignore[return-value]
    from rich.table import Table

    new_table = Table(title=title, title_justify="left", title_style="bold")
    for column in columns:
        new_table.add_column(
            column.removeprefix(">"), justify="right" if column.startswith(">") else "left", overflow="fold"
        )
    return new_table


def amount(nbytes: float) -> str:
    """Return bytes in a readable unit."""
    # Decimal, as rates of links and memories are.
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.1f} GB"


def rate_text(frames_per_s: float, published: RateRange | None) -> str:
    """Return a predicted rate, and the range that holds 90 % by published figures."""
    text = f"{frames_per_s:.4g} frames/s"
    if published is None:
        return text
    low, high = (f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}" for rate in (published.low, published.high))
    return f"{text}, {low} to {high} by {published.figures} published figures"
