"""Closable: a context manager that closes itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self


class Closable:
    """Base of what `close` releases at the end of its block."""

    def close(self) -> None:
        """Release everything."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Call all functions, then raise the first error."""
    errors: list[BaseException] = []
    for function in functions:
        try:
            function()
        except BaseException as error:  # noqa: BLE001, PERF203 - it is raised below
            # Not raised at once, since the others have to be closed.
            errors.append(error)
    if errors:
        raise errors[0]
