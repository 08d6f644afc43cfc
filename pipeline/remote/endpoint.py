"""Endpoint: where a member of a pool is reached, and the session with it."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from pipeline.core.plan.plan import StagePlan
from pipeline.core.remote_address import Address
from pipeline.remote.connection import Connection


class RemoteSession(Protocol):
    """Calls of every kind of connection; each raises `DeviceLost` when the other side is lost."""

    def open(self, stage: StagePlan, code: Any) -> int:
        """Let the server load a stage, and return its number."""

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through an opened stage."""

    def run_timed(
        self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, and return the seconds that the board's device took as well."""

    def usable(self) -> bool:
        """Return True while the server is there, as far as this machine knows."""

    def break_off(self) -> None:
        """End a call that hangs in another thread."""

    def close(self) -> None:
        """End the session."""


class Endpoint(ABC):
    """Where a member of a pool is reached; its text is what messages call it.

    Attributes
    ----------
    overlaps : bool
        Whether a frame may be on its way there while another one is computed.
    """

    overlaps = True

    @abstractmethod
    def count_slots(self) -> int:
        """Return how many stages it runs at once, or raise `DeviceLost` if it does not answer."""

    @abstractmethod
    def connect(self) -> RemoteSession:
        """Return a new session, or raise `DeviceLost`."""

    def version_of(self, session: RemoteSession) -> str:  # noqa: ARG002 - most have none
        """Return the checksum of the bundle that a session's frames meet; empty if that is no question."""
        return ""


@dataclass(frozen=True)
class ServerEndpoint(Endpoint):
    """A server of this project.

    Attributes
    ----------
    address : Address
    """

    address: Address

    def __str__(self) -> str:
        return str(self.address)

    def count_slots(self) -> int:
        """Ask the server."""
        with contextlib.closing(self.connect()) as connection:
            return connection.slots

    def connect(self) -> Connection:
        """Begin a session."""
        return Connection(self.address)

    def version_of(self, session: RemoteSession) -> str:
        """Return what the server has said last."""
        return session.version if isinstance(session, Connection) else ""
