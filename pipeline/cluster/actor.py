"""ReplicaActor: the replica as Ray actor, the only module importing Ray on load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

from pipeline.cluster.replica import MissingBundle, Replica, ReplicaOrder, ReplicaReady, ReplicaRefusal

CONTROL = "control"
"""Group of calls answered while all others compute: one that loads, and one that gives a sign of life."""


class ReplicaActor(Replica):
    """Replica called from another process."""

    @ray.method(concurrency_group=CONTROL)  # type: ignore[untyped-decorator]
    def prepare(
        self, order: ReplicaOrder, references: Mapping[str, Any] | None = None
    ) -> ReplicaReady | ReplicaRefusal | MissingBundle:
        """Load the bundle from here or from the call."""
        return super().prepare(order, references)

    @ray.method(concurrency_group=CONTROL)  # type: ignore[untyped-decorator]
    def greet(self) -> None:
        """Give a sign of life."""


def start_actor(places: int, **options: Any) -> Any:
    """Return a new actor with so many concurrent frames."""
    actor_class = ray.remote(concurrency_groups={CONTROL: 2})(ReplicaActor)
    # What may be computed twice is for this project to say, and not for Ray: no task is tried again by itself.
    supervision = {"max_restarts": -1, "max_task_retries": 0, "scheduling_strategy": "SPREAD"}
    return actor_class.options(max_concurrency=places, **supervision, **options).remote()
