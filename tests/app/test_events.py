"""Events of triggers: where they go, and what has to be allowed."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

import pipeline
from pipeline.app.application import App
from pipeline.app.nodes import Model, Stream, Trigger
from pipeline.errors import PipelineError
from tests.support import app_models


def publish(to: str, **options: Any) -> None:
    """Run an application whose trigger fires on the second of three frames."""
    trigger = Trigger(reads=("squares",), when="squares", to=(to,))
    app = App({"door": Stream(source="-")}, {"squares": Model(file="-"), "seen": trigger})
    scenes = app_models.Scenes([app_models.scene(squares) for squares in ([], [(1, 1, 3)], [])])
    bundles = {"squares": app_models.detector()}
    with pipeline.load_app(app, sources={"door": scenes}, bundles=bundles, **options) as running:
        running.run()


def check(event: Any) -> None:
    """Check that it is the event of the second frame."""
    assert (event["trigger"], event["stream"], event["number"]) == ("seen", "door", 1)
    assert event["results"]["squares"][0]["label"] == "square"


def test_a_command_reads_the_event(tmp_path: Path) -> None:
    target = tmp_path / "event.json"
    program = f"import sys; open({str(target)!r}, 'w').write(sys.stdin.read())"
    publish(f'exec:{sys.executable} -c "{program}"')
    check(json.loads(target.read_text()))


def test_a_web_server_gets_the_event() -> None:
    bodies = list[bytes]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        publish(f"http://127.0.0.1:{server.server_port}/events")
        server.shutdown()
        thread.join()
    check(json.loads(bodies[0]))
    assert len(bodies) == 1


def test_ros_gets_the_event_as_a_string() -> None:
    pytest.importorskip("cyclonedds", reason="the extra ros2 is not installed")
    pytest.importorskip("rosbags", reason="the extra ros2 is not installed")
    from pipeline.ros.configuration import PROFILES
    from pipeline.ros.messages import cdr
    from pipeline.ros.transports.dds import Dds

    domain, received, came = 20 + os.getpid() % 200, list[Any](), threading.Event()

    def receive(payload: bytes) -> None:
        received.append(cdr.decode(payload, "std_msgs/msg/String"))
        came.set()

    with Dds(domain, localhost=True) as peer:
        peer.subscribe("/alarms", "std_msgs/msg/String", PROFILES["reliable"], receive)
        # A message before both have found each other is nobody's: events come until one has.
        while not came.is_set():
            publish(f"ros:/alarms?localhost=true&domain={domain}")
            came.wait(0.2)
    check(json.loads(received[0].data))


@pytest.mark.parametrize(
    ("to", "options", "words"),
    [
        ("exec:true", {"allow_commands": False}, "starts commands; allow that by --allow-commands"),
        ("http://127.0.0.1/", {"allow_network": False}, "sends events away; allow that by --allow-network"),
        ("mqtt://127.0.0.1/a", {"allow_network": False}, "sends events away"),
        ("ros:/alarms", {"allow_network": False}, "sends events away"),
        ("ros:/alarms?transport=udp", {}, "udp"),
        ("ros:/alarms?colour=red", {}, "has the option 'colour'"),
        ("events.txt", {}, "events cannot go to 'events.txt'; give FILE.jsonl, -, http"),
        ("nowhere/events.jsonl", {}, "there is no folder 'nowhere'"),
    ],
)
def test_what_is_not_allowed_or_no_address_is_refused(to: str, options: dict[str, Any], words: str) -> None:
    if to.startswith("ros") and not options:
        pytest.importorskip("rosbags", reason="the extra ros2 is not installed")
    with pytest.raises(PipelineError, match=words):
        publish(to, **options)
