"""Address: where a source or sink is, as text: ``kind:place?option=value&option=value``."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import InputError, near


@dataclass(frozen=True)
class Address:
    """A text taken apart.

    Attributes
    ----------
    text : str
        As it was given.
    kind : str
        Such as ``"camera"``; empty where the text is a path.
    place : str
        Such as ``"/dev/video0"``.
    options : mapping of str to str
    """

    text: str
    kind: str
    place: str
    options: Mapping[str, str] = field(default_factory=dict)

    def only(self, known: Collection[str]) -> Mapping[str, str]:
        """Return the options.

        Raises
        ------
        InputError
            If there is one that is not among `known`.
        """
        for name in self.options:
            if name not in known:
                what = f"the options are {', '.join(known)}{near(name, known)}" if known else "it takes no options"
                raise InputError(f"{self.text!r} has the option {name!r}; {what}")
        return self.options


def parse(text: str, kinds: Collection[str]) -> Address:
    """Take `text` apart; one of `kinds` in front of a colon is its kind.

    Raises
    ------
    InputError
        If an option has no value.
    """
    kind, colon, rest = text.partition(":")
    # A file that is there is meant, whatever its name looks like.
    if Path(text).exists() or not colon or kind not in kinds:
        kind, rest = "", text
    if Path(rest).exists():
        return Address(text, kind, rest)
    place, _, query = rest.partition("?")
    pairs = [part.partition("=") for part in query.split("&") if part]
    for name, _, value in pairs:
        if not value:
            raise InputError(f"{text!r}: the option {name!r} has no value; write {name}=VALUE")
    return Address(text, kind, place, {name: value for name, _, value in pairs})


def size(text: str) -> tuple[int, int]:
    """Return the width and height that ``640x480`` stands for.

    Raises
    ------
    InputError
        If it is no size.
    """
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(f"{text!r} is not a size; write WIDTHxHEIGHT, such as 640x480")
    return int(width), int(height)
