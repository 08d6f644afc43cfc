"""Settings: what is chosen when a pipeline starts, and stays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pipeline.board import Device
from pipeline.executor.devices.base import DeviceRuntime
from pipeline.scheduler.admission import Admission
from pipeline.scheduler.supervision import Supervision
from pipeline.scheduler.trace import Trace


@dataclass(frozen=True)
class Settings:
    """The options of a pipeline.

    Attributes
    ----------
    create : callable
        Makes the runtime of a device.
    admission : Admission
        Which frames wait at the entrance, and which are dropped there.
    supervision : Supervision
        What happens when stages fail or hang.
    trace : Trace or None
        Where to note events.
    """

    create: Callable[[Device], DeviceRuntime]
    admission: Admission
    supervision: Supervision
    trace: Trace | None = None
