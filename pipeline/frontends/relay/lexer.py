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
      (?P<space>      \s+ | //[^\n]* )
    | (?P<comment>    /\* )
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


_COMMENT_EDGES = re.compile(r"/\*|\*/")


class Lexeme(NamedTuple):
    """A word of the text."""

    kind: str
    """variable, global, number, projection, string, name, symbol or end."""
    text: str
    offset: int
    type: str = ""
    """Comment behind a number; empty otherwise."""

    def __str__(self) -> str:
        """Return the token as a message shows it."""
        return "the end" if self.kind == "end" else repr(self.text[:40])


def tokens(text: str, error: Callable[[int, str], ModelError]) -> Iterator[Lexeme]:
    """Yield the tokens of `text` before its metadata, then ``"end"``."""
    offset = 0
    while offset < len(text) and (match := _TOKENS.match(text, offset)):
        kind = str(match.lastgroup if match.lastgroup != "type" else "number")
        if kind == "metadata":
            break
        if kind == "comment":
            if (end := _comment_end(text, offset)) < 0:
                raise error(offset, "this comment has no end; expected '*/'")
            offset = end
            continue
        if kind != "space":
            yield Lexeme(kind, _word(kind, match), offset, match.group("type") or "")
        offset = match.end()
    if offset < len(text) and not text.startswith(METADATA, offset):
        raise error(offset, _complaint(text, offset))
    yield Lexeme("end", "", offset)


def _word(kind: str, match: re.Match[str]) -> str:
    return match.group(kind).partition("/*")[0].rstrip() if kind == "number" else match.group(kind)


def _comment_end(text: str, offset: int) -> int:
    """Return the end of a nested comment, or -1."""
    depth = 0
    for edge in _COMMENT_EDGES.finditer(text, offset):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


def _complaint(text: str, offset: int) -> str:
    if text[offset] == '"':
        return "this string has no end; expected '\"' on the same line"
    return f"{text[offset]!r} begins nothing that Relay text has"
