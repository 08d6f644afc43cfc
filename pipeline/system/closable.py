"""Closable: a context manager that closes itself."""

from __future__ import annotations

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
