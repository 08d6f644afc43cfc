"""Types and attribute values of Relay text."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.frontends.relay.cursor import Cursor
from pipeline.frontends.relay.metadata import Metadata
from pipeline.frontends.relay.scalars import WORDS, number, string, word
from pipeline.frontends.relay.syntax import OtherType, TensorType, Type

Meta = Callable[[], object]
"""Reader of ``meta[key][index]`` at the cursor, from the metadata."""


def read_type(cursor: Cursor, meta: Meta) -> Type:
    """Read a type."""
    with cursor.nesting():
        token = cursor.peek()
        if cursor.accept("("):
            cursor.read_list(")", lambda: read_type(cursor, meta))
            return OtherType("a tuple")
        if token.text == "meta":
            meta()
            return OtherType("a type that is left open")
        if cursor.accept("?", "_"):
            return OtherType("a type that is left open")
        return _read_type_name(cursor, meta)


def _read_type_name(cursor: Cursor, meta: Meta) -> Type:
    name = cursor.take("name", "a type, such as Tensor[(1, 3), float32]").text
    if name == "fn":
        cursor.expect("(")
        cursor.read_list(")", lambda: read_type(cursor, meta))
        cursor.expect("->")
        read_type(cursor, meta)
        return OtherType("a function")
    if name == "Tensor":
        return _tensor_type(cursor, meta)
    if cursor.accept("["):
        cursor.read_list("]", lambda: read_type(cursor, meta))
        return OtherType(f"a {name}")
    # A scalar's type is its dtype alone, as in fn (%x: float32).
    return TensorType((), name)


def _tensor_type(cursor: Cursor, meta: Meta) -> TensorType:
    cursor.expect("[")
    cursor.expect("(")
    shape = cursor.read_list(")", lambda: _extent(cursor, meta))
    cursor.expect(",")
    dtype = cursor.take("name", "a dtype, such as float32").text
    cursor.expect("]")
    return TensorType(tuple(shape), dtype)


def _extent(cursor: Cursor, meta: Meta) -> int | None:
    token = cursor.peek()
    if token.text == "meta":
        meta()
        return None
    if cursor.accept("?"):
        return None
    if token.kind != "number" or not token.text.isdecimal() or len(token.text) > 18:
        raise cursor.expectation_error("an extent, such as 224, or '?'")
    return int(cursor.next().text)


def read_attribute(cursor: Cursor, meta: Meta) -> object:
    """Read an attribute's value: numbers, strings, None, lists of these."""
    with cursor.nesting():
        for opening, close in (("[", "]"), ("(", ")")):
            if cursor.accept(opening):
                return list(cursor.read_list(close, lambda: read_attribute(cursor, meta)))
        if cursor.accept("{"):
            return dict(cursor.read_list("}", lambda: _entry(cursor, meta)))
        if cursor.at("meta"):
            return meta()
        if cursor.peek().kind == "name" and cursor.peek(1).text == "(":  # An object, such as VirtualDevice(...).
            cursor.next()
            cursor.expect("(")
            return dict(cursor.read_list(")", lambda: _entry(cursor, meta)))
        return _single(cursor)


def _entry(cursor: Cursor, meta: Meta) -> tuple[str, object]:
    token = cursor.next()
    key = string(token.text) if token.kind == "string" else token.text
    if not cursor.accept(":", "="):
        raise cursor.expectation_error("':' or '='")
    return key, read_attribute(cursor, meta)


def _single(cursor: Cursor) -> object:
    negative = cursor.accept("-")
    token = cursor.peek()
    if token.kind == "number":
        return -read_number(cursor)[0] if negative else read_number(cursor)[0]
    if token.kind == "string" and not negative:
        return string(cursor.next().text)
    if token.kind != "name":
        raise cursor.expectation_error("a number, a string, None, True, False, or a list in '[' ']'")
    value = word(token.text) if token.text in WORDS else token.text
    cursor.next()
    return -value if negative and isinstance(value, float) else value


def read_number(cursor: Cursor) -> tuple[int | float, str]:
    """Read a number and return its value and its dtype."""
    token = cursor.take("number", "a number")
    try:
        value, dtype = number(token.text)
    except ValueError as error:
        raise cursor.error(token.offset, f"{token} is no number that Relay has: {error}") from None
    return value, token.type or dtype


def read_meta(cursor: Cursor, metadata: Metadata) -> object:
    """Read ``meta[key][index]``; return the metadata's value."""
    offset = cursor.expect("meta").offset
    cursor.expect("[")
    key = cursor.take("name", "a name, such as relay.Constant").text
    cursor.expect("]")
    cursor.expect("[")
    index = read_number(cursor)[0]
    cursor.expect("]")
    entries = metadata.get(key, ())
    if not isinstance(index, int) or index >= len(entries):
        raise cursor.error(
            offset, f"the metadata has no {key} number {index}; print the program with astext(show_meta_data=True)"
        )
    return entries[index]
