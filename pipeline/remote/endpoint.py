"""Endpoint: address of a pool member, with its sessions."""

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
    """Calls common to all connections; they raise `DeviceLost` on loss."""

    def open(self, stage: StagePlan, code: Any) -> int:
        """Load a stage on the server and return its number."""

    def run(self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Run one frame through an opened stage."""

    def run_timed(
        self, program: int, stage: StagePlan, arrays: Sequence[np.ndarray]
    ) -> tuple[Sequence[np.ndarray], float]:
        """Run one frame, with the board device's seconds."""

    def usable(self) -> bool:
        """Return False once the server is known to be gone."""

    def break_off(self) -> None:
        """Abort a hanging call, from another thread."""

    def close(self) -> None:
        """End the session."""


class Endpoint(ABC):
    """Address of a pool member; its text appears in messages.

    `overlaps` is True if a frame may be on its way there while another one is computed.
    """

    overlaps = True

    @abstractmethod
    def count_slots(self) -> int:
        """Count its concurrent stages, or raise `DeviceLost` without an answer."""

    @abstractmethod
    def connect(self) -> RemoteSession:
        """Return a new session, or raise `DeviceLost`."""

    def version_of(self, session: RemoteSession) -> str:  # noqa: ARG002 - most have none
        """Return the checksum of a session's bundle, empty where irrelevant."""
        return ""


@dataclass(frozen=True)
class ServerEndpoint(Endpoint):
    """A server of this project."""

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
        """Return the server's last statement."""
        return session.version if isinstance(session, Connection) else ""
