"""Cursor: a position among the tokens of a text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from pipeline.errors import ModelError
from pipeline.frontends.relay.lexer import Lexeme, tokens
from pipeline.frontends.relay.syntax import make_line_finder

DEEPEST = 48
"""How far brackets may nest; Relay prints one level, since each intermediate has a line of its own."""

Item = TypeVar("Item")


class Cursor:
    """Reads tokens one by one; `ModelError` if a part of the text is no token."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.locate = make_line_finder(text)
        # All at once: a damaged token is reported before any message on what it makes of its neighbours.
        self._tokens = list(tokens(text, self.error))
        self._position = 0
        self._depth = 0

    @property
    def end(self) -> int:
        """Offset of the metadata, or of the text's end."""
        return self._tokens[-1].offset

    def error(self, offset: int, message: str) -> ModelError:
        """Return an error at file, line and column."""
        return ModelError(f"{self.file!r}, {self.locate(offset)}: {message}")

    def expectation_error(self, expectation: str) -> ModelError:
        """Return an error that names the expected token."""
        token = self.peek()
        return self.error(token.offset, f"expected {expectation}, found {token}")

    def peek(self, ahead: int = 0) -> Lexeme:
        """Return the next token, or a later one, without taking it."""
        # The last token is the end, however far somebody looks ahead.
        return self._tokens[min(self._position + ahead, len(self._tokens) - 1)]

    def next(self) -> Lexeme:
        """Take the next token."""
        token = self.peek()
        self._position += 1
        return token

    def at(self, *texts: str) -> bool:
        """Check the next token against some texts."""
        token = self.peek()
        # The text of a string in quotes may look like any symbol.
        return token.text in texts and token.kind != "string"

    def accept(self, *texts: str) -> bool:
        """Take the next token if it is one of these."""
        is_next = self.at(*texts)
        self._position += is_next
        return is_next

    def expect(self, text: str, expectation: str = "") -> Lexeme:
        """Take the next token, `text`; `expectation` names all alternatives."""
        if not self.at(text):
            raise self.expectation_error(expectation or repr(text))
        return self.next()

    def take(self, kind: str, expectation: str) -> Lexeme:
        """Take the next token, of one kind."""
        if self.peek().kind != kind:
            raise self.expectation_error(expectation)
        return self.next()

    def read_list(self, close: str, item: Callable[[], Item]) -> Sequence[Item]:
        """Read items between commas through `close`."""
        items: list[Item] = []
        while not self.at(close):
            items.append(item())
            if not self.accept(","):
                break
        self.expect(close, f"',' or {close!r}")
        return items

    @contextlib.contextmanager
    def nesting(self) -> Iterator[None]:
        """Count the nesting of the block, up to a limit."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise self.error(self.peek().offset, f"brackets nest more than {DEEPEST} deep, which is not supported")
        # Not in a finally: an error ends the reading of the whole text.
        yield
        self._depth -= 1
