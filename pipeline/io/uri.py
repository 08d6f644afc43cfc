"""Uri: names a source or sink: ``kind:location?option=value&option=value``."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.errors import InputError, near

_OPTIONS = re.compile(r"(.*)\?([a-z]+=[^&?\s]+(?:&[a-z]+=[^&?\s]+)*)", re.DOTALL)


@dataclass(frozen=True)
class Uri:
    """A text taken apart."""

    text: str
    kind: str
    """Kind, such as ``"camera"``; empty where the text is a path."""
    location: str
    """Location, such as ``"/dev/video0"``."""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The location as a path."""
        return Path(self.location)

    def check_options(self, *names: str) -> Mapping[str, str]:
        """Return the options, or raise `InputError`."""
        for name in self.options:
            if name not in names:
                remedy = f"the options are {', '.join(names)}{near(name, names)}" if names else "it takes no options"
                raise InputError(f"{self.text!r} has the option {name!r}; {remedy}")
        return self.options


def parse_uri(text: str, kinds: Collection[str], commands: Collection[str] = ()) -> Uri:
    """Split `text`, with one of `kinds` before a colon, or raise `InputError`.

    Of `commands` among these kinds, options come behind the last question mark, if they look like some.
    """
    kind, colon, remainder = text.partition(":")
    if colon and kind in commands:
        match = _OPTIONS.fullmatch(remainder)
        location, query = match.groups() if match else (remainder, "")
        # Not looked up as a path: a pipeline is longer than any name may be.
        return Uri(text, kind, location, dict(part.split("=", 1) for part in query.split("&") if part))
    # A file that is there is meant, whatever its name looks like.
    # And C:/a.mp4 has no kind that is known.
    if Path(text).exists() or not colon or kind not in kinds:
        kind, remainder = "", text
    # Before options are looked for: names of files may have a question mark.
    if Path(remainder).exists():
        return Uri(text, kind, remainder)
    location, _, query = remainder.partition("?")
    pairs = [part.partition("=") for part in query.split("&") if part]
    for name, _, value in pairs:
        if not value:
            raise InputError(f"{text!r}: the option {name!r} has no value; write {name}=VALUE")
    return Uri(text, kind, location, {name: value for name, _, value in pairs})


def check_allowed(text: str, allow_commands: bool) -> None:
    """Refuse a text that would be run, unless it is the user's own."""
    if not allow_commands:
        raise InputError(
            f"{text!r} would run a command of somebody else's file; give it on the command line, or pass "
            "allow_commands=True"
        )


def parse_size(text: str) -> tuple[int, int]:
    """Parse width and height such as ``640x480``, or raise `InputError`."""
    width, _, height = text.partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(f"{text!r} is not a size; write WIDTHxHEIGHT, such as 640x480")
    return int(width), int(height)


def parse_count(options: Mapping[str, str], name: str) -> int:
    """Return an option that is a whole number, 0 without it; `InputError` for another text."""
    text = options.get(name, "0")
    if not text.isdecimal():
        raise InputError(f"{name} is {text!r}; it must be a whole number")
    return int(text)


def has_suffix(*suffixes: str) -> Callable[[Path], bool]:
    """Return a test for files with one of these suffixes."""
    # Folders may be called like files, such as a dataset in `frames.mp4`.
    return lambda path: path.suffix.lower() in suffixes and not path.is_dir()
