"""TriggerStep: a rule that fires on frames: events and clips."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.app.clips import ClipRecorder
from pipeline.app.events import EventPublisher, open_publisher
from pipeline.app.sink_step import stream_frame
from pipeline.app.steps import Condition, Step

if TYPE_CHECKING:
    from pipeline.app.app_frame import AppFrame
    from pipeline.app.application import App
    from pipeline.app.nodes import Clip, Trigger
    from pipeline.app.permissions import Permissions


class TriggerStep(Step):
    """Fires when its condition becomes true, or on each frame where it is.

    Its result is True for frames on which it fires, else False.
    """

    def __init__(self, name: str, node: Trigger, app: App, permissions: Permissions) -> None:
        self._name, self._node, self._permissions = name, node, permissions
        self._condition = Condition.of(app, name, "when")
        self._publishers: list[EventPublisher] = [open_publisher(text, permissions) for text in node.to]
        self._was_true: dict[str, bool] = {}
        self._fired_s: dict[str, float] = {}
        self._clips: dict[str, ClipRecorder] = {}
        if node.clip and ":" not in node.clip.to:
            Path(node.clip.to).parent.mkdir(parents=True, exist_ok=True)

    def compute(self, frame: AppFrame) -> bool:
        """Test the rule for a frame; publish and record if it fires."""
        fires = self._fires(frame)
        clip = self._node.clip
        text = self._clip_text(clip, frame) if fires and clip else ""
        if fires:
            event = self._event(frame, text)
            for publisher in self._publishers:
                publisher.put(event)
        if clip:
            recorder = self._clips.get(frame.stream)
            if recorder is None:
                recorder = self._clips[frame.stream] = ClipRecorder(clip, self._permissions.open_sink)
            recorder.add(stream_frame(frame, self._node.reads), text)
        return fires

    def forget(self, stream: str) -> None:
        """Begin a stream anew."""
        self._was_true.pop(stream, None)
        self._fired_s.pop(stream, None)
        if self._condition is not None:
            self._condition.forget(stream)

    def close(self) -> None:
        """Complete clips, and publish what waits."""
        for recorder in self._clips.values():
            recorder.close()
        for publisher in self._publishers:
            publisher.close()

    def _fires(self, frame: AppFrame) -> bool:
        holds = self._condition is None or self._condition.holds(frame)
        was_true, self._was_true[frame.stream] = self._was_true.get(frame.stream, False), holds
        if not holds or (self._node.on == "start" and was_true):
            return False
        last_s = self._fired_s.get(frame.stream, -math.inf)
        if last_s <= frame.time_s < last_s + self._node.rest:
            return False
        self._fired_s[frame.stream] = frame.time_s
        return True

    def _clip_text(self, clip: Clip, frame: AppFrame) -> str:
        name = f"{self._name}-{frame.stream}-{frame.index:06d}"
        return clip.to.replace("{name}", name).replace("{stream}", frame.stream)

    def _event(self, frame: AppFrame, clip: str) -> dict[str, Any]:
        results = {name: frame.results[name] for name in self._node.reads if name in frame.results}
        facts = {name: result.facts() for name, result in results.items() if hasattr(result, "facts")}
        event: dict[str, Any] = {
            "trigger": self._name,
            "stream": frame.stream,
            "frame": frame.frame.name,
            "number": frame.index,
            "timestamp": frame.time_s,
            "results": facts,
        }
        return {**event, "clip": clip} if clip else event
