"""Lifecycle: a managed node, from unconfigured by inactive to active and back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pipeline.errors import InputError
from pipeline.ros.bridge import ignore
from pipeline.ros.messages.diagnostics import Condition
from pipeline.ros.monitor import INTERVAL_S
from pipeline.ros.node import RosNode
from pipeline.ros.parameters import change_configuration, list_parameters
from pipeline.system.closable import Closable

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.ros.configuration import Configuration
    from pipeline.ros.transports.base import Transport
    from pipeline.scheduler.waiting import Latch


class Lifecycle(Closable):
    """States of a node, moved by `start`, or by the calls of others through the middleware.

    While it is unconfigured, there is no node. `load` loads the bundle of a configuration, and `report` is called with
    each error of a transition, and of the node, whose options are those of `RosNode`; `error` is that of the last
    transition. `on_failure` moves a node that failed to the state for errors; without it, its error ends `run`.
    """

    def __init__(
        self,
        configuration: Configuration,
        load: Callable[[Configuration], Bundle],
        transport: Transport,
        report: Callable[[Exception], None] = ignore,
        **options: Any,
    ) -> None:
        self.configuration, self._load, self._transport = configuration, load, transport
        self._report, self._options = report, options
        self.node: RosNode | None = None
        self.error: Exception | None = None
        self.on_failure: Callable[[], object] | None = None
        self._last_condition: Condition | None = None
        # Transitions come in the middleware's thread, and the loop of diagnostics is another one.
        self._lock = threading.RLock()

    def start(self) -> None:
        """Configure and activate."""
        self.configure()
        self.activate()

    def configure(self) -> None:
        """Load the bundle and announce the topics."""
        with self._lock:
            bundle = self._load(self.configuration)
            self.node = RosNode(self.configuration, bundle, self._transport, self._report, **self._options)

    def activate(self) -> None:
        """Subscribe."""
        self._require_node().activate()

    def deactivate(self) -> None:
        """Unsubscribe, and answer what has come; an error of the node is raised here."""
        node = self._require_node()
        node.deactivate()
        if node.error is not None:
            raise node.error

    def cleanup(self) -> None:
        """Close the node: for good, or, also behind an error, until it is configured again."""
        with self._lock:
            node, self.node = self.node, None
        if node is not None:
            node.close()
            self._last_condition = node.condition()

    close = cleanup

    def note(self, error: Exception) -> None:
        """Keep and report the error of a transition."""
        self.error = error
        self._report(error)

    def run(self, stop: threading.Event | Latch) -> None:
        """Watch the node and publish diagnostics until `stop` is set.

        Raises `PipelineError` if the node fails, and nobody but `start` moves it.
        """
        while not stop.wait(INTERVAL_S):
            with self._lock:
                node = self.node
                if node is not None:
                    node.watch()
            if node is None or node.error is None:
                continue
            if self.on_failure is None or self.configuration.autostart:
                raise node.error
            # Its transition fails with the node's error, and the state for errors follows.
            self.on_failure()

    def condition(self) -> Condition:
        """Return the condition of the node, or that of its end."""
        node = self.node
        return node.condition() if node is not None else self._last_condition or Condition()

    # Services.

    def pause(self) -> str:
        """Leave messages alone until `resume`."""
        self._require_node().is_paused = True
        return "paused"

    def resume(self) -> str:
        """Answer messages again."""
        self._require_node().is_paused = False
        return "answering"

    def swap(self) -> str:
        """Let later messages run on the bundle that the parameter names by now."""
        self._require_node().swap(self._load(self.configuration))
        return f"running {self.configuration.bundle}"

    # Parameters.

    def parameters(self) -> dict[str, Any]:
        """Return the configuration as parameters by name."""
        return list_parameters(self.configuration)

    def change(self, changes: Mapping[str, Any]) -> None:
        """Change parameters; `InputError` with the reason for those that cannot be changed now."""
        changed = change_configuration(self.configuration, changes)
        node = self.node
        if node is not None:
            node.change(changed)
        self.configuration = changed

    def _require_node(self) -> RosNode:
        if self.node is None:
            raise InputError("the node is not configured")
        return self.node
