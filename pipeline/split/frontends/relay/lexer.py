"""Relay text -> tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pipeline.errors import ModelError

METADATA = "#[metadata]"

# A scalar of old versions has its type in the comment behind it; elsewhere comments mean nothing.
_TOKENS = re.compile(
    r"""
      (?P<space>      \s+ | //[^\n]* | /\*.*?\*/ )
    | (?P<metadata>   \#\[metadata\] )
    | (?P<variable>   %(?: \d+ | [A-Za-z_](?: [\w/$] | :: | \.\w )* ) )
    | (?P<global>     @[A-Za-z_][\w.]* )
    | (?P<number>     \d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:[fiu]\d*|h)?
                      (?: \s*/\*\s*ty=(?P<type>bool|u?int\d+|float\d+)\b[^*]*\*/ )? )
    | (?P<projection> \.\d+ )
    | (?P<string>     "(?:[^"\\\n]|\\.)*" )
    | (?P<name>       [A-Za-z_]\w*(?:\.[A-Za-z_]\w*)* )
    | (?P<symbol>     \#\[ | -> | => | == | != | <= | >= | /(?!\*) | [-+*<>()\[\]{}.,:;=?!&|] )
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(NamedTuple):
    """A word of the text.

    Attributes
    ----------
    kind : str
        variable, global, number, projection, string, name, symbol or end.
    text : str
    offset : int
        Where it begins.
    type : str
        What the comment behind a number says; empty otherwise.
    """

    kind: str
    text: str
    offset: int
    type: str = ""

    def __str__(self) -> str:
        """Return the token as a message shows it."""
        return "the end" if self.kind == "end" else repr(self.text[:40])


def tokens(text: str, error: Callable[[int, str], ModelError]) -> Iterator[Token]:
    """Yield the tokens of `text` up to its metadata or its end, then one of kind ``"end"``.

    Parameters
    ----------
    text : str
    error : callable
        Makes an error from an offset and a message.
    """
    offset = 0
    while offset < len(text) and (found := _TOKENS.match(text, offset)):
        kind = str(found.lastgroup if found.lastgroup != "type" else "number")
        if kind == "metadata":
            break
        if kind != "space":
            yield Token(kind, _word(kind, found), offset, found.group("type") or "")
        offset = found.end()
    if offset < len(text) and not text.startswith(METADATA, offset):
        raise error(offset, _complaint(text, offset))
    yield Token("end", "", offset)


def _word(kind: str, found: re.Match[str]) -> str:
    return found.group(kind).partition("/*")[0].rstrip() if kind == "number" else found.group(kind)


def _complaint(text: str, offset: int) -> str:
    if text.startswith("/*", offset):
        return "this comment has no end; expected '*/'"
    if text[offset] == '"':
        return "this string has no end; expected '\"' on the same line"
    return f"{text[offset]!r} begins nothing that Relay text has"
