"""Relay text -> its tree."""

from __future__ import annotations

import re

from pipeline.frontends.relay.cursor import Cursor
from pipeline.frontends.relay.expressions import Expressions
from pipeline.frontends.relay.lexer import METADATA
from pipeline.frontends.relay.metadata import read_metadata
from pipeline.frontends.relay.syntax import RelayFunction, RelayProgram

VERSION = "0.0.5"
"""Version of Relay's text written by TVM 0.7 to 0.17."""


def parse(text: str, file: str) -> RelayProgram:
    """Read the text of a Relay module or function.

    A single function is called ``main``. Raises `ModelError` if it is not Relay text of this version; the message has
    the line, the column and what was expected there.
    """
    cursor = Cursor(text, file)
    # Metadata first: constants in the text refer to it by number.
    payload = text[cursor.end + len(METADATA) :]
    metadata = read_metadata(payload, f"the metadata of {file!r}") if payload.strip() else {}
    _check_version(cursor)
    expressions = Expressions(cursor, metadata)
    functions: dict[str, RelayFunction] = {}
    # An empty text goes on to the definition, whose error says what is expected.
    while cursor.peek().kind != "end" or not functions:
        position = cursor.peek().offset
        name, function = _definition(cursor, expressions)
        if name in functions:
            raise cursor.error(position, f"there are two functions '@{name}'")
        functions[name] = function
    return RelayProgram(file, functions, cursor.locate)


def _check_version(cursor: Cursor) -> None:
    token = cursor.peek()
    # Text of 0.0.4 began with a bare v0.0.4; its let and its attributes are not those of today.
    version = "0.0.4 or older" if re.fullmatch(r"v\d", token.text) else VERSION
    if cursor.accept("#["):
        cursor.expect("version")
        cursor.expect("=")
        version = cursor.take("string", f'"{VERSION}"').text.strip('"')
        cursor.expect("]")
    if version != VERSION:
        raise cursor.error(
            token.offset,
            f"this is Relay text of version {version}; supported is {VERSION}, which TVM 0.7 to 0.17 write, so print "
            "it with one of these",
        )


def _definition(cursor: Cursor, expressions: Expressions) -> tuple[str, RelayFunction]:
    token = cursor.peek()
    if cursor.accept("fn"):
        return "main", expressions.function(token.offset)
    if cursor.at("type", "extern"):
        raise cursor.error(
            token.offset, "algebraic data types are not supported; only tensors, tuples and functions are"
        )
    cursor.expect("def", "'def'")
    name = cursor.take("global", "a function's name, such as '@main'").text[1:]
    return name, expressions.function(token.offset)
