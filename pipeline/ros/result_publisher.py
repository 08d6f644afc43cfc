"""Result publisher: answers of the pipeline as messages on their topics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from pipeline.core.model_card import Preparation
from pipeline.io.result_reader import make_reader
from pipeline.ros.configuration import Configuration, quality
from pipeline.ros.messages.message_writer import MessageWriter

if TYPE_CHECKING:
    from pipeline.executor.bundle import Bundle
    from pipeline.picture.geometry import Geometry
    from pipeline.picture.pixels import Pixels
    from pipeline.ros.bridge import BridgeAnswer
    from pipeline.ros.transports.base import Sender, Transport


class ResultPublisher:
    """Publishes answers on the topics of a configuration.

    Pictures are prepared as the model's card and the configuration say. Raises `InputError` if outputs, decoder and
    types do not go together.
    """

    def __init__(self, configuration: Configuration, bundle: Bundle) -> None:
        self._pixels: Pixels | None = None
        self._geometry: Geometry | None = None
        self._senders: list[Sender] = []
        self.configure(configuration, bundle)

    def configure(self, configuration: Configuration, bundle: Bundle) -> None:
        """Take over a configuration with the same topics; an error leaves the one before."""
        card = configuration.complete_card(bundle)
        results = make_reader(bundle.plan, card)
        decoding: dict[str, Any] = {
            "task": card.task if results else "",
            "guessed": card.origins.get("decoder", "").startswith("guess"),
        }
        publications = self._publications = [
            msgspec.structs.replace(each, labels=each.labels or card.labels) for each in configuration.publish
        ]

        def make_writers(geometry: Geometry | None) -> list[MessageWriter]:
            plan = bundle.plan
            return [MessageWriter(each, plan.outputs, geometry, plan.quantization, **decoding) for each in publications]

        self._writers, self._make_writers = make_writers(self._geometry), make_writers
        self.preparation, self._results = card.preparation or Preparation(), results

    def announce(self, transport: Transport) -> None:
        """Announce the topics."""
        self._senders = [transport.announce(each.topic, each.type, quality(each.qos)) for each in self._publications]

    def fit(self, pixels: Pixels | None, geometry: Geometry | None) -> None:
        """Expect pictures of a format, and their position in the model's input."""
        self._pixels, self._geometry = pixels, geometry
        self._writers = self._make_writers(geometry)

    def publish(self, answer: BridgeAnswer, camera_info: Any) -> None:
        """Publish an answer; `camera_info` is the newest message of that type."""
        pairs = [
            (writer, sender)
            for writer, sender in zip(self._writers, self._senders, strict=True)
            # Drawn only for those who look.
            if not writer.draws or sender.peers()
        ]
        result = None
        if self._results is not None and any(writer.decodes for writer, _ in pairs):
            size = None if self._pixels is None else (self._pixels.width, self._pixels.height)
            # Once for all topics.
            result = self._results.read(answer.outputs, self._geometry, size)
        for writer, sender in pairs:
            payload = writer.payload(answer, result, self._pixels, camera_info)
            if payload is not None:
                sender(payload, answer.header.stamp)

    def close(self) -> None:
        """Publish nothing any more."""
        for sender in self._senders:
            sender.close()
