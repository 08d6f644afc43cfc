"""Option values: types for the argument parser, free of heavy imports.

`pipeline.cli.CommandParser` refuses an impossible value in one line: the option, its value, and the remedy.
"""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")

# 64 bits hold any number of 18 digits.
DIGITS = 18
"""Most digits of a whole number: Python refuses to read thousands of them by an error of its own."""

PORTS = 65536
AUTO = "auto"

_EXTENTS = re.compile(r"0*[1-9]\d{0,8}(\.\.\d{1,9})?", re.ASCII)

Extent = int | str


class Once(argparse.Action):
    """Action of an option that is refused a second time."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002 - the interface of argparse
        namespace: argparse.Namespace,
        values: object,
        _: str | None = None,
    ) -> None:
        """Store the value, or raise `argparse.ArgumentError`."""
        # `argparse` itself drops the first value without a word.
        if getattr(namespace, self.dest) != self.default:
            raise argparse.ArgumentError(self, "is given twice; this command takes one")
        setattr(namespace, self.dest, values)


def positive(text: str) -> float:
    """Read a number above 0."""
    return _number(text, at_least_zero=False)


def not_negative(text: str) -> float:
    """Read a number of at least 0."""
    return _number(text, at_least_zero=True)


def _number(text: str, *, at_least_zero: bool) -> float:
    try:
        value = float(text)
    except ValueError:
        # Fails the comparison below, as a text `nan` does.
        value = math.nan
    if not (0 < value < math.inf or (at_least_zero and value == 0)):
        raise _refusal(text, "a number of at least 0" if at_least_zero else "a number above 0")
    return value


def tolerance(text: str) -> str:
    """Parse shares such as ``1e-3``, steps such as ``2steps``, or both."""
    from pipeline.comparison.judgement import Tolerance
    from pipeline.errors import BuildError

    try:
        Tolerance.of(text)
    except BuildError:
        raise _refusal(text, "a share such as 0.001, steps such as 2steps, or both: 0.001,2steps") from None
    return text


def count(text: str) -> int:
    """Read a whole number of at least 1."""
    if not is_whole(text) or int(text) < 1:
        raise _refusal(text, "a whole number of at least 1")
    return int(text)


def count_or_auto(text: str) -> int | str:
    """Parse an integer of at least 1, or ``auto``."""
    if text == AUTO:
        return text
    if not is_whole(text) or int(text) < 1:
        raise _refusal(text, "a whole number of at least 1, or 'auto'")
    return int(text)


def natural(text: str) -> int:
    """Read a whole number of at least 0."""
    if not is_whole(text):
        raise _refusal(text, "a whole number of at least 0")
    return int(text)


seed = natural


def port(text: str) -> int:
    """Parse a port, 0 for a free one."""
    if not is_whole(text) or int(text) >= PORTS:
        raise _refusal(text, "a port, or 0 for one that is free")
    return int(text)


def is_whole(text: str) -> bool:
    """Test for a non-negative integer with a bounded number of digits."""
    return text.isdecimal() and len(text) <= DIGITS


def colours(text: str) -> tuple[float, ...]:
    """Read a number, or one for each colour."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise _refusal(text, "a number, or three such as 0.485,0.456,0.406") from None


def pair(example: str) -> Callable[[str], tuple[str, str]]:
    """Return the type of ``NAME=VALUE``, split at the last ``=``."""

    def read_pair(text: str) -> tuple[str, str]:
        name, _, value = text.rpartition("=")
        if not (name and value):
            raise _refusal(text, f"like '{example}'")
        return name, value

    return read_pair


def device(text: str) -> tuple[str, str]:
    """Parse ``NAME=DEVICE``, with ``=`` allowed in the device's address."""
    name, _, value = text.partition("=")
    if not (name and value):
        raise _refusal(text, "NAME=DEVICE, such as gpu=cuda:1")
    return name, value


def stage_seconds(text: str) -> tuple[str, float]:
    """Read ``SECONDS``, for all stages, or ``STAGE=SECONDS``."""
    name, _, seconds = text.rpartition("=")
    return name, positive(seconds)


def pair_number(text: str) -> tuple[str, float]:
    """Read ``NAME=NUMBER``."""
    name, number = pair("NAME=4")(text)
    return name, positive(number)


def cores(text: str) -> tuple[range, ...]:
    """Parse cores such as ``0,1`` or ``4-7`` as ranges of any end."""
    ranges = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        last = last or first
        if not (is_whole(first) and is_whole(last)):
            raise _refusal(text, "like 0,1 or 4-7")
        ranges.append(range(int(first), int(last) + 1))
    return tuple(ranges)


def names(text: str) -> tuple[str, ...]:
    """Read names with commas between them, such as ``cpu,gpu``."""
    parts = tuple(text.split(","))
    if not all(parts):
        raise _refusal(text, "names with commas between them")
    return parts


def runtimes(text: str) -> tuple[str, ...]:
    """Read names of runtimes, such as ``tvm,onnxruntime``."""
    from pipeline.core.board.device import runtime_names

    names = tuple(text.split(","))
    if not set(names) <= set(runtime_names()) or len(set(names)) < len(names):
        raise _refusal(text, f"different names of {', '.join(runtime_names())}, with commas between them")
    return names


def tool(text: str) -> tuple[str, str]:
    """Read ``NAME=PYTHON``, with the name of a compiler that quotes."""
    from pipeline.measure.quotes.compilers import COMPILERS

    name, _, python = text.partition("=")
    if name not in COMPILERS or not python:
        raise _refusal(text, f"{' or '.join(COMPILERS)}, '=' and the path of a Python that has it")
    return name, python


def size(text: str) -> dict[str, Extent]:
    """Parse extents such as ``H=224,W=224``, or ranges such as ``N=1..32``."""
    parts = [part.partition("=") for part in text.split(",")]
    if not all(name.isidentifier() and _EXTENTS.fullmatch(extent) for name, _, extent in parts):
        raise _refusal(text, "NAME=EXTENT with an extent of at least 1, such as N=16, H=224,W=224 or N=1..32")
    return {name: int(extent) if extent.isdecimal() else extent for name, _, extent in parts}


def shape(text: str) -> tuple[str, list[Extent]]:
    """Parse an input's name and extents: numbers, or names if varying."""
    # From the right: names of inputs may have `=` in them.
    name, separator, extents = text.rpartition("=")
    shape = [int(extent) if is_whole(extent) else extent for extent in extents.split(",")]
    if not separator or not all(extent.isidentifier() if isinstance(extent, str) else extent > 0 for extent in shape):
        raise _refusal(
            text,
            "INPUT=EXTENTS with extents of at least 1, such as data=1,3,224,224, or names for those that vary",
        )
    return name, shape


def state(text: str) -> tuple[str, str]:
    """Parse an output and the input that reads it; return the input first."""
    # At the middle one of several: names of TensorFlow end like `:0`.
    parts = text.split(":")
    middle = len(parts) // 2
    output, name = ":".join(parts[:middle]), ":".join(parts[middle:])
    if len(parts) % 2 or not output or not name:
        raise _refusal(text, "OUTPUT:INPUT, such as hn:h")
    return name, output


def _refusal(text: str, remedy: str) -> argparse.ArgumentTypeError:
    # One line has to remain one line, whatever was pasted.
    excerpt = text if len(text) <= 4 * DIGITS else f"{text[: 4 * DIGITS]}..."
    return argparse.ArgumentTypeError(f"is {excerpt!r}; it must be {remedy}")
