"""Events: what a trigger publishes, and where to."""

from __future__ import annotations

import importlib
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

import msgspec

from pipeline.errors import AppError, reason
from pipeline.io.child_process import split_command
from pipeline.system.optional import require

if TYPE_CHECKING:
    from pipeline.app.permissions import Permissions

Event = Mapping[str, Any]
"""Plain values: ``trigger``, ``stream``, ``frame``, ``number``, ``timestamp``, ``results`` and ``clip``."""

Connection = tuple[Callable[[bytes], object], Callable[[], object]]
"""Functions that publish an event's line, and that disconnect."""

MODULES = {"ros": "pipeline.ros.topic_sink"}
"""Rooms above this one with an ``open_events``, by the kind of address; loaded when used."""

MOST_WAITING = 100
"""Events that wait for a server that is slow; later ones are lost, and counted."""

TIMEOUT_S = 10.0
"""Seconds that a server or command has for an event."""


class EventPublisher:
    """Publishes events in a thread of its own, so that a slow server holds up no frame.

    `publish` is called with an event's JSON, a line without its end; `notice` with the first error and the count of
    lost events; `disconnect` in the end.
    """

    def __init__(
        self,
        text: str,
        publish: Callable[[bytes], object],
        notice: Callable[[str], object],
        disconnect: Callable[[], object] = lambda: None,
    ) -> None:
        self._text, self._publish, self._notice, self._disconnect = text, publish, notice, disconnect
        self._queue: Queue[bytes | None] = Queue(MOST_WAITING)
        self.lost = 0
        self._thread = threading.Thread(target=self._run, name=f"events {text}", daemon=True)
        self._thread.start()

    def put(self, event: Event) -> None:
        """Publish an event, soon."""
        try:
            self._queue.put_nowait(msgspec.json.encode(event))
        except Full:
            self.lost += 1

    def close(self) -> None:
        """Publish what waits, and end."""
        self._queue.put(None)
        self._thread.join()
        self._disconnect()
        if self.lost:
            self._notice(f"{self.lost} events for {self._text} were lost")

    def _run(self) -> None:
        while (line := self._queue.get()) is not None:
            try:
                self._publish(line)
            except Exception as error:  # noqa: BLE001, PERF203 - servers fail in many ways, and frames go on
                if not self.lost:
                    self._notice(f"an event for {self._text} was lost: {reason(error)}")
                self.lost += 1


def open_publisher(text: str, permissions: Permissions) -> EventPublisher:
    """Return the publisher of a text; raises as `check_publisher`, and if it cannot be opened.

    A text is ``FILE.jsonl``, ``-`` for standard output, ``http://...``, ``mqtt://HOST:PORT/TOPIC``, ``ros:/TOPIC`` or
    ``exec:COMMAND``, which gets the event on its standard input.
    """
    check_publisher(text, permissions)
    kind = text.partition(":")[0]
    if text == "-":
        return EventPublisher(text, _write_line, permissions.notice)
    if kind in _OPENERS or kind in MODULES:
        opener = _OPENERS.get(kind) or importlib.import_module(MODULES[kind]).open_events
        publish, disconnect = opener(text)
        return EventPublisher(text, publish, permissions.notice, disconnect)
    path = Path(text)
    return EventPublisher(text, lambda line: _append(path, line), permissions.notice)


def check_publisher(text: str, permissions: Permissions) -> None:
    """Raise `AppError` for events that are not allowed to go there, or for an address that is none."""
    kind = text.partition(":")[0]
    if kind in ("http", "https", "mqtt", "ros") and not permissions.network:
        raise AppError(f"{text!r} sends events away; allow that by --allow-network (allow_network=True)")
    if kind == "exec" and not permissions.commands:
        raise AppError(f"{text!r} starts commands; allow that by --allow-commands (allow_commands=True)")
    if kind in MODULES and not text.partition(":")[2].partition("?")[0].strip("/"):
        raise AppError(f"{text!r} names no topic; write such as ros:/events")
    if kind == "exec":
        split_command(text.partition(":")[2])
    if kind == "mqtt":
        _read_mqtt(text)
    if text == "-" or kind in _OPENERS or kind in MODULES:
        return
    if not text.endswith((".jsonl", ".ndjson")):
        raise AppError(
            f"events cannot go to {text!r}; give FILE.jsonl, -, http://..., mqtt://HOST/TOPIC, ros:/TOPIC or "
            "exec:COMMAND"
        )
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise AppError(f"cannot write {text!r}: there is no folder {str(path.parent)!r}")


def _write_line(line: bytes) -> None:
    sys.stdout.write(line.decode() + "\n")
    sys.stdout.flush()


def _append(path: Path, line: bytes) -> None:
    # Opened for each event: they are rare, and whoever rotates the file may move it away.
    with path.open("ab") as stream:
        stream.write(line + b"\n")


def _open_web(text: str) -> Connection:
    def publish(line: bytes) -> None:
        request = urllib.request.Request(text, line, {"Content-Type": "application/json"})  # noqa: S310 - checked above
        urllib.request.urlopen(request, timeout=TIMEOUT_S).close()  # noqa: S310

    return publish, lambda: None


def _read_mqtt(text: str) -> tuple[Any, SplitResult, str]:
    """Return the package of MQTT, the address and the topic."""
    address = urlsplit(text)
    topic = address.path.lstrip("/")
    if not address.hostname or not topic:
        raise AppError(f"{text!r} has to be mqtt://HOST:PORT/TOPIC")
    return require("paho.mqtt.client", "mqtt", "events by MQTT"), address, topic


def _open_mqtt(text: str) -> Connection:
    """Publish by MQTT with the server's receipt."""
    mqtt, address, topic = _read_mqtt(text)
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2)
    if address.username:
        client.username_pw_set(address.username, address.password)
    client.connect_async(address.hostname, address.port or 1883)
    # Connects in its own thread, and again when the server comes back.
    client.loop_start()

    def publish(line: bytes) -> None:
        client.publish(topic, line, qos=1).wait_for_publish(TIMEOUT_S)

    def disconnect() -> None:
        client.disconnect()
        client.loop_stop()

    return publish, disconnect


def _open_command(text: str) -> Connection:
    command = split_command(text.partition(":")[2])
    # Allowed by the user, see `open_publisher`.
    return lambda line: subprocess.run(command, input=line + b"\n", timeout=TIMEOUT_S, check=True), lambda: None  # noqa: S603


_OPENERS: Mapping[str, Callable[[str], Connection]] = {
    "http": _open_web,
    "https": _open_web,
    "mqtt": _open_mqtt,
    "exec": _open_command,
}
