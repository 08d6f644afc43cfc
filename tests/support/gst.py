"""GStreamer for tests, where the system has it."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from subprocess import PIPE, Popen

import pytest

from pipeline.errors import MissingExtra
from pipeline.io.gstreamer import SYSTEM_FOLDER, library


def skip_without_gstreamer(*elements: str) -> None:
    """Skip the test without GStreamer for this Python, or without an element, and say why."""
    try:
        factory = library().Gst.ElementFactory
    except MissingExtra as error:
        folder = Path(SYSTEM_FOLDER, "gi")
        if folder.exists() and not any((folder / f"_gi{suffix}").exists() for suffix in EXTENSION_SUFFIXES):
            pytest.skip(f"this system's PyGObject is for another Python: {error}")
        pytest.skip(str(error))
    for name in elements:
        if factory.find(name) is None:
            pytest.skip(f"GStreamer has no element {name}")


@contextmanager
def rtsp_server(pipeline_text: str) -> Iterator[str]:
    """Serve a pipeline that ends in an element called pay0 on loopback, in a process; give its address."""
    with Popen([sys.executable, __file__, pipeline_text], stdout=PIPE, stderr=PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            if not (port := server.stdout.readline().strip()):
                pytest.skip("GStreamer has no RTSP server; apt-get install gir1.2-gst-rtsp-server-1.0")
            yield f"rtsp://127.0.0.1:{port}/camera"
        finally:
            server.kill()


def serve(pipeline_text: str) -> None:
    """Serve for ever, and print the port."""
    library()
    importlib.import_module("gi").require_version("GstRtspServer", "1.0")
    rtsp, glib = (importlib.import_module(f"gi.repository.{name}") for name in ("GstRtspServer", "GLib"))
    server, factory = rtsp.RTSPServer.new(), rtsp.RTSPMediaFactory.new()
    server.set_address("127.0.0.1")
    server.set_service("0")
    factory.set_launch(f"( {pipeline_text} )")
    server.get_mount_points().add_factory("/camera", factory)
    server.attach(None)
    print(server.get_bound_port(), flush=True)
    glib.MainLoop().run()


if __name__ == "__main__":
    serve(sys.argv[1])
