"""Offer: what a server has for its sessions, and what it says of itself."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from importlib import metadata

import psutil

from pipeline.errors import PipelineError
from pipeline.executor import processor
from pipeline.remote import messages
from pipeline.remote.computing import Computing, offered
from pipeline.remote.store import Store


class Refusal(PipelineError):
    """Raised where a server will not do what a client asks; the client is told, and let go."""


@dataclass(frozen=True)
class Offer:
    """What a server offers to its sessions.

    Attributes
    ----------
    store : Store
        The files of stages.
    computing : Computing
        The devices.
    cores : tuple of int
        Host cores that stages may use.
    largest_frame : int
        Bytes that the inputs of a stage may have together, and its outputs.
    """

    store: Store
    computing: Computing
    cores: tuple[int, ...]
    largest_frame: int = messages.LARGEST_FRAME

    def welcome(self) -> messages.Welcome:
        """Return what a client is told first."""
        return messages.Welcome(
            messages.PROTOCOL,
            installed("soc-pipeline"),
            installed("apache-tvm"),
            processor.machine(),
            processor.full_name()[:4096],
            offered(),
            self.cores,
            psutil.virtual_memory().total,
            self.store.uploads is not None,
        )


def installed(name: str) -> str:
    """Return the version of an installed package, without importing it."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(name)
    return "(not installed)"
