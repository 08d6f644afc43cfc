"""Annotated pictures over HTTP, as Motion JPEG for any browser."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pipeline.errors import InputError
from pipeline.io.sinks.annotation import OPTIONS, Annotator, check_annotator, make_annotator
from pipeline.io.sinks.base import Sink, SinkKind, SinkOptions
from pipeline.io.sinks.photo import encode_jpeg
from pipeline.io.source_frame import StreamFrame
from pipeline.io.uri import Uri
from pipeline.observe.local_server import ADDRESS, LoopbackServer, listen
from pipeline.system.optional import require

QUALITY = 85
"""Quality of JPEG, from 0 to 100."""

REPEAT_S = 1.0
"""Seconds after which a picture is sent again: only by sending is it known that a viewer has gone."""

# Not all browsers show a stream that is no part of a page.
PAGE = b"""<!doctype html><meta charset="utf-8"><title>soc-pipeline</title><body style="margin:0;background:#111">
<img src="stream" alt="Pictures of the pipeline" style="display:block;width:100vw;height:100vh;object-fit:contain">
"""


class HttpStream(Sink, LoopbackServer):  # type: ignore[misc] # both end with their block; the sink's way counts
    """Shows the newest picture to browsers on the loopback address; nothing is drawn while nobody looks.

    Port 0 takes one that is free. By default results are those of the model's decoder. Raises `InputError` if the port
    is taken, not allowed, or none; `MissingExtra` if Pillow is not installed.
    """

    def __init__(self, port: int, annotator: Annotator | None = None) -> None:
        # Its modules take longer to import than all other sinks.
        from pipeline.observe.wsgi import WsgiServer

        LoopbackServer.__init__(self)
        self._pictures = _Pictures(annotator or Annotator())
        self._server = listen("pictures", port, lambda: WsgiServer(self._pictures, port))
        self._start(self._server.serve_forever, "pictures")

    @property
    def url(self) -> str:
        """Address for a browser."""
        return f"http://{ADDRESS}:{self._server.server_port}/"

    def add(self, result: StreamFrame) -> None:
        """Show one picture."""
        self._pictures.put(result)

    def finish(self) -> None:
        """Stop serving."""
        self.close()

    def _stop(self) -> None:
        self._pictures.put(None)
        self._server.end()


class _Pictures:
    """Application of WSGI with the newest picture, encoded in the threads of viewers."""

    def __init__(self, annotator: Annotator) -> None:
        require("PIL", "images", "a stream of JPEG")
        self._annotator = annotator
        self._news, self._encoding = threading.Condition(), threading.Lock()
        self._ended, self._newest = False, None  # type: tuple[bool, StreamFrame | None]
        self._encoded: tuple[StreamFrame | None, bytes] = (None, b"")

    def put(self, result: StreamFrame | None) -> None:
        with self._news:
            self._newest, self._ended = result, result is None
            self._news.notify_all()

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        kinds = {"/": "text/html", "/stream": "multipart/x-mixed-replace; boundary=picture"}
        kind = kinds.get(environ["PATH_INFO"], "text/plain")
        status = "404 Not Found" if kind == "text/plain" else "200 OK"
        start_response(status, [("Content-Type", kind), ("Cache-Control", "no-store")])
        return {"/": [PAGE], "/stream": self._parts()}.get(environ["PATH_INFO"], [b"404 There are / and /stream\n"])

    def _parts(self) -> Iterator[bytes]:
        shown: StreamFrame | None = None
        while True:
            with self._news:
                self._news.wait_for(lambda: self._ended or self._newest is not shown, REPEAT_S)  # noqa: B023 - at once
                if self._ended:
                    return
                shown = self._newest
            if shown is not None:
                picture = self._encode(shown)
                head = f"--picture\r\nContent-Type: image/jpeg\r\nContent-Length: {len(picture)}\r\n\r\n"
                yield head.encode() + picture + b"\r\n"

    def _encode(self, result: StreamFrame) -> bytes:
        # Once for all viewers.
        with self._encoding:
            if self._encoded[0] is not result:
                self._encoded = result, encode_jpeg(self._annotator.rgb(result), QUALITY)
            return self._encoded[1]


def _check(uri: Uri) -> None:
    check_annotator(uri)
    if not uri.location.isdecimal():
        raise InputError(
            f"{uri.text!r}: {uri.location!r} is no port; write mjpeg:8080, or mjpeg:0 for one that is free"
        )


def _open(uri: Uri, sink_options: SinkOptions) -> HttpStream:
    sink = HttpStream(int(uri.location), make_annotator(uri.options, sink_options))
    sink_options.notice(f"pictures: {sink.url}")
    return sink


KINDS = (SinkKind("mjpeg", _open, "mjpeg:PORT for browsers", is_file=False, options=OPTIONS, check=_check),)
