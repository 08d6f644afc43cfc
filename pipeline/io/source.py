"""Source: where frames come from."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Self

    from pipeline.io.frame import Frame
    from pipeline.io.pixels import Pixels


class Source:
    """Yields frames, once; a context manager that lets go of what it reads from.

    A source of one's own has `__iter__`, and what differs of the attributes.

    Attributes
    ----------
    live : bool
        Whether frames come at their own pace and are lost if nobody takes them.
    fresh : bool
        Whether each frame has memory of its own, which the pipeline need not copy.
    pixels : Pixels or None
        What all its frames are, if they are pictures that have to be prepared for the model.
    """

    live = False
    fresh = False
    pixels: Pixels | None = None

    def __iter__(self) -> Iterator[Frame]:
        """Yield the frames."""
        raise NotImplementedError

    def close(self) -> None:
        """Let go of what it reads from."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
