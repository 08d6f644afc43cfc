"""Offer: a server's files and devices, and its self-description."""

from __future__ import annotations

from dataclasses import dataclass

import psutil

from pipeline.errors import PipelineError
from pipeline.executor import core_kinds, host_target
from pipeline.remote import messages
from pipeline.remote.device_threads import ServerDevices, offered_kinds
from pipeline.remote.served_bundle import BUNDLE, OfferedBundle
from pipeline.remote.store import FileStore
from pipeline.system.version import VERSION
from pipeline.tvm.library import tvm_version


class Refusal(PipelineError):
    """Raised when a server refuses a request; the client is informed and dropped."""


@dataclass(frozen=True)
class Offer:
    """Files and devices of a server, for its sessions."""

    store: FileStore
    computing: ServerDevices
    cores: tuple[int, ...]
    """Host cores that stages may use."""
    largest_frame: int = messages.LARGEST_FRAME
    """Bytes that the inputs of a stage may have together, and its outputs."""
    core: str = ""
    """Processor that all these cores are, as LLVM calls it; what Linux says if it is empty."""
    bundle: OfferedBundle | None = None
    """Bundle that it runs as one program."""

    def welcome(self) -> messages.Welcome:
        """Return the first message to a client."""
        return messages.Welcome(
            messages.PROTOCOL,
            VERSION,
            tvm_version(),
            host_target.machine(),
            host_target.full_name()[:4096],
            (*offered_kinds(), *((BUNDLE,) if self.bundle else ())),
            self.cores,
            psutil.virtual_memory().total,
            self.store.uploads is not None,
            self.core or core_kinds.processor(self.cores),
            self.computing.slots,
            self.bundle.slots if self.bundle else 0,
            self.bundle.version() if self.bundle else "",
        )
