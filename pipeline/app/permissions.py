"""Permissions: what an application may do beyond computing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from pipeline.io.sinks.base import Sink
from pipeline.io.sinks.registry import check_sink, open_sink


@dataclass(frozen=True)
class Permissions:
    """What an application may start and send, and whom it tells."""

    commands: bool = False
    """True if it may start commands."""
    network: bool = False
    """True if it may send events to other machines."""
    notice: Callable[[str], None] = lambda _: None
    """Function to call with addresses that were opened, and events that were lost."""

    def check_sinks(self, texts: Iterable[str], *, has_folder: bool = True) -> None:
        """Raise `InputError` for the first text that `open_sink` refuses; see `check_sink`."""
        for text in texts:
            check_sink(text, allow_commands=self.commands, has_folder=has_folder)

    def open_sink(self, text: str) -> Sink:
        """Return the sink of a text, or raise `InputError`."""
        return open_sink(text, (), decoded=True, notice=self.notice, allow_commands=self.commands)
