"""AppView: an application on the live page: its streams side by side, and its graph with rates."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter, deque
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.app.application import App
from pipeline.app.nodes import SinkNode, Trigger
from pipeline.app.sink_step import combine
from pipeline.errors import PipelineError
from pipeline.io.frame_view import QUALITY
from pipeline.io.sinks.overlay import draw
from pipeline.io.sinks.photo import encode_jpeg
from pipeline.observe.web.summary import data_url
from pipeline.observe.web.update import WINDOW_S
from pipeline.system.optional import is_installed

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.running_app import RunningApp

LARGEST = 640
"""Pixels per side of a stream's picture, at most: several of them are side by side."""

LATENCIES = 300
"""Newest frames whose latencies the median is of."""


class AppView:
    """An application under observation; `pipeline.observe.web.ViewServer.watch` takes it."""

    def __init__(self, running: RunningApp) -> None:
        self._running, self._lock = running, threading.Lock()
        self._triggers = [name for name, _ in running.app.kinds(Trigger)]
        self._last: dict[str, AppFrame] = {}
        self._runs: Counter[str] = Counter()
        # By stream and trigger, since names of both may be alike elsewhere.
        self._fired: Counter[tuple[str, str]] = Counter()
        self._fired_s: dict[tuple[str, str], float] = {}
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._snapshots: deque[tuple[float, Counter[str]]] = deque()
        self._pictures: dict[str, tuple[AppFrame, dict[str, Any]]] = {}
        self.close = running.observe(self._note)

    def _note(self, frame: AppFrame) -> None:
        """Note a frame that has ended; what costs time is left to `update`."""
        with self._lock:
            self._last[frame.stream] = frame
            self._runs.update([frame.stream, *frame.results])
            self._latencies.append(time.time() - frame.frame.ready)
            for name in self._triggers:
                if frame.results.get(name):
                    self._fired[frame.stream, name] += 1
                    self._fired_s[frame.stream, name] = time.monotonic()

    def update(self) -> dict[str, Any]:
        """Return what the page shows now, as plain values."""
        app = self._running.app
        with self._lock:
            runs, last, median_s = self._runs.copy(), dict(self._last), float(np.median(self._latencies or [0.0]))
        runs += Counter({f"{name}/": book.delivered for name, book in self._running.crop_books.snapshot().items()})
        rates = self._rates(runs)
        return {
            "model": app.name or "application",
            "state": "closed" if self._running.closed else "running",
            "frames": {"per_s": sum(rates[name] for name in app.streams)},
            "latency": {"ms": [round(1e3 * median_s, 3)]},
            "streams": [self._stream(name, last.get(name), rates[name]) for name in app.streams],
            "nodes": [_node(app, name, rates) for name in (*app.streams, *app.order)],
            "edges": [[read, name] for name in app.order for read in app.reads(name)],
        }

    def _rates(self, runs: Counter[str]) -> Counter[str]:
        """Return frames and crops per second of the last seconds."""
        now = time.monotonic()
        self._snapshots.append((now, runs))
        while len(self._snapshots) > 2 and now - self._snapshots[1][0] >= WINDOW_S:
            self._snapshots.popleft()
        then, before = self._snapshots[0]
        rates: Any = {name: (runs[name] - before[name]) / (now - then) for name in runs if now > then}
        return Counter(rates)

    def _stream(self, name: str, frame: AppFrame | None, per_s: float) -> dict[str, Any]:
        book, now = self._running.statistics()[name], time.monotonic()
        ends = {"delivered": book.delivered, "failed": book.failed, "dropped": book.dropped}
        app = self._running.app
        triggers = [trigger for trigger in self._triggers if name in app.stream_names[trigger]]
        # Drawn once, however often it is shown.
        if frame is not None and self._pictures.get(name, (None,))[0] is not frame:
            self._pictures[name] = frame, _describe(app, frame)
        return {
            "name": name,
            "per_s": per_s,
            "in_flight": book.in_flight,
            "ends": {end: count for end, count in ends.items() if count or end == "delivered"},
            "triggers": [
                {
                    "name": trigger,
                    "count": self._fired[name, trigger],
                    "seconds": now - self._fired_s[name, trigger] if (name, trigger) in self._fired_s else None,
                }
                for trigger in triggers
            ],
            **(self._pictures[name][1] if name in self._pictures else {}),
        }


def _node(app: App, name: str, rates: Counter[str]) -> dict[str, Any]:
    kind, fact = app.describe(name)
    # Addresses may have passwords, and folders are of no interest.
    fact = "" if kind == "stream" else re.split(r"[/\\]", fact)[-1]
    crops_per_s = rates[f"{name}/"] if getattr(app.nodes.get(name), "for_each", "") else None
    return {"name": name, "kind": kind, "fact": fact, "per_s": rates[name], "crops_per_s": crops_per_s}


def _describe(app: App, frame: AppFrame) -> dict[str, Any]:
    """Return a frame's picture with what was found last, its result as text, and the zones and lines."""
    result = combine({name: frame.results[name] for name in _last_nodes(app, frame)})
    facts: dict[str, Any] = {"number": frame.index, "text": "" if result is None else result.summary()}
    if frame.error is not None:
        facts["error"] = str(frame.error)
    try:
        if frame.has_picture and is_installed("PIL"):
            picture = frame.picture if result is None else draw(frame.picture, result)
            facts["picture"] = data_url("jpeg", encode_jpeg(picture, QUALITY, LARGEST))
            facts["shapes"] = _shapes(app, frame)
    except PipelineError as error:
        # What is shown must never harm what runs.
        facts["error"] = str(error)
    return facts


def _last_nodes(app: App, frame: AppFrame) -> list[str]:
    """Return the nodes with a result that no other one of the frame has in it."""
    made = [name for name in app.order if name in frame.results and not isinstance(app.nodes[name], SinkNode | Trigger)]
    # A condition leaves boxes out, which are still there.
    whole = {name for name in made if not getattr(app.nodes[name], "where", "")}
    return [name for name in made if not whole.intersection(app.readers(name))]


def _shapes(app: App, frame: AppFrame) -> list[dict[str, Any]]:
    """Return the zones and lines that conditions on the stream name, in shares of the picture's sides."""
    nodes = [name for name in app.order if frame.stream in app.stream_names[name]]
    texts = [getattr(app.nodes[name], key, "") for name in nodes for key in ("when", "where")]
    words = {word for text in texts for word in re.findall(r"[\w-]+", text)}
    shapes = {name: (True, points) for name, points in app.zones.items()}
    shapes |= {name: (False, points) for name, points in app.lines.items()}
    return [
        {
            "name": name,
            "zone": is_zone,
            "points": (np.array(points) / (1 if np.max(points) <= 1 else frame.size)).tolist(),
        }
        for name, (is_zone, points) in shapes.items()
        if name in words
    ]
