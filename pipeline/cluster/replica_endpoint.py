"""Replica endpoint: an actor as pool member, restarted after Ray's giving up."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

from pipeline.cluster.ray_access import load_ray, translate_errors
from pipeline.cluster.replica import MissingBundle, ReplicaReady, ReplicaRefusal
from pipeline.cluster.replica_session import ReplicaSession, ReplicaState, ReplicaTerms
from pipeline.errors import DeviceLost, RemoteError
from pipeline.remote.connection import ServerRefusal
from pipeline.remote.endpoint import Endpoint


class ReplicaEndpoint(Endpoint):
    """Replica, restarted by Ray on any fitting node."""

    def __init__(self, number: int, terms: ReplicaTerms) -> None:
        self.state, self._terms = ReplicaState(number), terms
        self._actor: Any = None
        # What was asked and not answered yet: a replica that waits for a node is not asked twice.
        self._question: Any = None
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"replica {self.state.number}"

    @property
    def actor(self) -> Any:
        """The actor; a new one if there is none."""
        with self._lock:
            if self._actor is None:
                self._actor = self._start()
            return self._actor

    def count_slots(self) -> int:
        """Load the bundle and count its concurrent frames."""
        answer = self._ask(None)
        if isinstance(answer, MissingBundle):
            answer = self._ask(self._terms.references())
        if not isinstance(answer, ReplicaReady):
            raise ServerRefusal(f"{self}: {answer.reason if isinstance(answer, ReplicaRefusal) else answer}")
        self.state.renew(answer)
        return self._terms.slots

    def connect(self) -> ReplicaSession:
        """Return a session."""
        return ReplicaSession(self.actor, self._terms, self.state, restart=self._restart, prepare=self.count_slots)

    def end(self) -> None:
        """End the actor."""
        with self._lock:
            if self._actor is not None:
                load_ray().kill(self._actor)
                self._actor = None

    def _start(self) -> Any:
        # Late: Ray is an extra.
        from pipeline.cluster.actor import start_actor

        return start_actor(self._terms.places, **self._terms.requirement.actor_options)

    def _restart(self) -> None:
        with self._lock:
            if self._actor is not None:
                load_ray().kill(self._actor, no_restart=False)

    def _ask(self, references: Mapping[str, Any] | None) -> Any:
        ray = load_ray()
        # Taken once: frames of several threads may meet a replica that Ray has started anew.
        question = self._question
        if question is None:
            question = self._question = self.actor.prepare.remote(self._terms.order, references)
        try:
            with translate_errors(str(self)):
                answer = ray.get(question, timeout=self._terms.timeout)
        except ray.exceptions.GetTimeoutError:
            raise DeviceLost(
                f"{self}: it loads its bundle still, or waits for a node with {self._terms.requirement}"
            ) from None
        except RemoteError as error:
            self._question = None
            raise ServerRefusal(str(error)) from error
        except DeviceLost as error:
            self._question = None
            if isinstance(error.__cause__, ray.exceptions.ActorDiedError):
                # For good: somebody has ended it, or its node could not have it.  The next question is another one's.
                with self._lock:
                    self._actor = None
            raise
        self._question = None
        return answer
