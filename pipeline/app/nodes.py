"""Nodes: what an application is made of, as its file says it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

FOR_EACH = ("boxes", "tiles")
"""What a model may run on each of: the boxes of a result, or tiles of the whole picture."""

TRACKERS = ("bytetrack", "iou", "regions")
"""Methods of trackers."""


class Stream(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A source of frames."""

    source: str
    """Text of the source, as for ``run --source``."""
    # Rate of a camera, or pace of a recording; or a factor of its own pace.
    fps: float | None = None
    speed: float | None = None
    reconnect: float = 0.0
    """Seconds for which a camera that was lost is tried again."""
    in_flight: int = 0
    """Upper bound on its frames in the application; 0 for as many as keep the models busy."""


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A step that reads streams or other nodes."""

    reads: tuple[str, ...] = ()
    """Streams or nodes; all streams by default."""
    when: str = ""
    """Condition for frames; the node is skipped where it is false. See `pipeline.app.expressions`."""


class Model(Node, frozen=True, kw_only=True):
    """A model on frames, or on each crop of them; a recurrent one keeps the state of each stream."""

    file: str
    """Model or bundle."""
    card: dict[str, Any] = {}
    """Fields of the model's card that win over its own."""
    # Those of `pipeline.plan`, for a model that is no bundle.
    board: str = "host"
    stages: int | str = "auto"
    precision: str = ""
    for_each: str = ""
    """One of `FOR_EACH`; empty for the whole frame."""
    where: str = ""
    """Condition for each box."""
    most: int = 40
    """Upper bound on crops of a frame; those with the best scores win."""
    margin: float = 0.0
    """Share of a box's sides that is added around it."""
    square: bool = False
    """True to widen crops to squares."""
    upright: str = ""
    """Two key points, ``"1-0"``, whose direction shall be upright in the crop; a box's own angle by default."""
    tile: tuple[int, int] | None = None
    """Width and height of tiles in pixels; the model's own size by default."""
    overlap: float = 0.2
    """Share of a tile that neighbours share."""
    stage_timeout: float | None = None
    """Seconds that a stage may run on one frame."""


class Function(Node, frozen=True, kw_only=True):
    """A Python function of a frame's results.

    `call`: ``"module:function"``; it gets the frame and the results that it reads, in order.
    """

    call: str


class Track(Node, frozen=True, kw_only=True):
    """A tracker: numbers for things that are followed over frames, one state per stream."""

    method: str = "bytetrack"
    """One of `TRACKERS`."""
    where: str = ""
    """Condition for each box."""
    feedback: str = ""
    """Node whose result of the frame before gives the boxes, for ``"regions"``."""
    options: dict[str, Any] = {}
    """Parameters of the method, see `pipeline.app.tracks`."""


class Clip(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A recording of the seconds around a trigger."""

    to: str
    """Sink; ``{name}`` is replaced by the event's stream and number."""
    # Seconds.
    before: float = 5.0
    after: float = 5.0


class Trigger(Node, frozen=True, kw_only=True):
    """A rule that fires: publishes events, starts clips, and lets others ask for it."""

    on: str = "start"
    """``"start"`` to fire when its condition becomes true, ``"frame"`` for each frame where it is."""
    to: tuple[str, ...] = ()
    """Where events go: ``FILE.jsonl``, ``-``, ``mqtt://HOST/TOPIC``, ``ros:/TOPIC``, ``http://...``,
    ``exec:COMMAND``."""
    clip: Clip | None = None
    rest: float = 0.0
    """Seconds after it fired in which it does not again."""


class SinkNode(Node, frozen=True, kw_only=True):
    """A sink for frames with their results.

    `to`: text of the sink, as for ``run --sink``; ``{stream}`` is replaced by the stream's name.
    """

    to: str


NODE_KINDS: Mapping[str, type[Node]] = MappingProxyType(
    {"model": Model, "function": Function, "track": Track, "trigger": Trigger, "sink": SinkNode}
)
"""Kinds of nodes by the name of their tables in a file."""
