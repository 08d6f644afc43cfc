"""Core lease: a replica's exclusive cores of a node, until its process ends."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pipeline.core.plan.plan import Plan
from pipeline.system import affinity


@dataclass
class CoreLease:
    """Cores of this process, during its life."""

    cores: tuple[int, ...] = ()
    descriptors: list[int] = field(default_factory=list)
    """Descriptors of the locked files."""

    def close(self) -> None:
        """Give them back."""
        for descriptor in self.descriptors:
            os.close(descriptor)
        self.cores, self.descriptors = (), []


def lease_cores(requested: Sequence[int], folder: Path | None = None) -> CoreLease:
    """Lease as many cores as wanted, preferably those, or none.

    The plan that names them may be for another machine. Processes of this user and machine lock cores in the folder.
    """
    root = folder or Path(tempfile.gettempdir()) / f"soc-pipeline-cores-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    usable = affinity.process_cores()
    lease = CoreLease()
    for core in sorted(usable, key=lambda core: (core not in requested, core)):
        if len(lease.cores) == len(requested):
            break
        if (descriptor := _lock(root / str(core))) is not None:
            lease.cores, lease.descriptors = (*lease.cores, core), [*lease.descriptors, descriptor]
    if len(lease.cores) < len(requested):
        # Two replicas on one core are better off where the system likes.
        lease.close()
    return lease


def place_on_cores(plan: Plan, cores: Sequence[int]) -> Plan:
    """Return a plan on these cores, unpinned without any."""
    planned = plan_cores(plan)
    spares = iter([core for core in cores if core not in planned])
    # Cores of the plan that are among them stay what they are: on a board they may be unlike.
    names: Mapping[int, int] = {core: core if core in cores else next(spares, -1) for core in planned} if cores else {}
    stages = [
        replace(stage, cores=tuple(names[core] for core in stage.cores) if cores else ()) for stage in plan.stages
    ]
    return replace(plan, stages=tuple(stages))


def plan_cores(plan: Plan) -> tuple[int, ...]:
    """Return the cores of all stages, each once."""
    return tuple(dict.fromkeys(_cores(plan)))


def _cores(plan: Plan) -> Iterator[int]:
    for stage in plan.stages:
        yield from stage.cores


def _lock(path: Path) -> int | None:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor
