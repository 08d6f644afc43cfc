from __future__ import annotations

import http.client
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib import resources
from typing import Any
from unittest import mock

import pytest

from pipeline.errors import InputError, MissingExtra
from pipeline.observe import web
from pipeline.scheduler import Pipeline
from tests.support.alive import collect
from tests.support.listening import listening_addresses
from tests.support.streams import IMAGE, NAME, pipeline, streaming

pytest.importorskip("tornado")
FILES = ("/", "/view.css", "/view.js", "/graph.js", "/application.js", "/charts.js")


@pytest.fixture
def running() -> Iterator[Pipeline]:
    with pipeline() as running:
        yield running


@pytest.fixture
def server(running: Pipeline) -> Iterator[web.ViewServer]:
    with web.serve(running) as server:
        yield server


@contextmanager
def ask(
    server: web.ViewServer, address: str, method: str = "GET", host: str | None = None
) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, address, headers={} if host is None else {"Host": host})
        yield connection.getresponse()
    finally:
        connection.close()


@contextmanager
def observers_of(running: Pipeline) -> Iterator[list[Any]]:
    """Give the observers that a pipeline has from now on; those that are taken away leave the list."""
    observers: list[Any] = []
    add = running.observe

    def observe(observer: Any) -> Callable[[], None]:
        remove = add(observer)
        observers.append(observer)

        def stop() -> None:
            remove()
            observers.remove(observer)

        return stop

    with mock.patch.object(running, "observe", observe):
        yield observers


def updates(answer: http.client.HTTPResponse) -> Iterator[Any]:
    """Yield what the messages of server-sent events say, whose form is checked."""
    assert answer.readline() == b"retry: 2000\n"
    assert answer.readline() == b"\n"
    while line := answer.readline():
        assert line.startswith(b"data: ")
        assert answer.readline() == b"\n"
        yield json.loads(line.removeprefix(b"data: "))


@pytest.mark.parametrize("address", FILES)
def test_the_page_is_whole_and_asks_nobody_else(server: web.ViewServer, address: str) -> None:
    with ask(server, address) as answer:
        text = answer.read().decode()
        assert answer.status == 200
        assert answer.headers.get_content_charset() == "utf-8"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "Server" not in answer.headers
        policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    # SVG's namespace is a name, not an address.
    assert not re.search(r"https?:|//\w", re.sub(r"(?m)^// .*$|\"http://www.w3.org/2000/svg\"", "", text))
    assert "innerHTML" not in text
    assert " style=" not in text
    assert not re.search(r"<script(?![^>]*\bsrc=)|\son\w+=", text)


def test_all_files_of_the_page_are_served(server: web.ViewServer) -> None:
    names = {file.name for file in resources.files("pipeline.observe.web").joinpath("page").iterdir()}
    assert names == {"index.html", *(address[1:] for address in FILES[1:])}


@pytest.mark.parametrize(
    ("address", "method", "status"),
    [
        ("/", "HEAD", 200),
        ("/nothing", "GET", 404),
        ("/../server.py", "GET", 404),
        ("/page/view.js", "GET", 404),
        ("/", "POST", 405),
        ("/events", "POST", 405),
        ("/events", "DELETE", 405),
    ],
)
def test_what_else_is_asked_gets_its_status(server: web.ViewServer, address: str, method: str, status: int) -> None:
    with ask(server, address, method) as answer:
        text = answer.read().decode()
    assert answer.status == status
    assert text.startswith("" if status == 200 else str(status))
    assert "Traceback" not in text


@pytest.mark.parametrize("address", ["/", "/events", "/nothing"])
@pytest.mark.parametrize("host", ["example.org", "example.org:{port}", "127.0.0.1.example.org", "localhost.evil", ""])
def test_a_name_that_is_not_this_machines_is_refused(server: web.ViewServer, address: str, host: str) -> None:
    with ask(server, address, host=host.format(port=server.port)) as answer:
        assert answer.status == 403
        assert b"http://127.0.0.1" in answer.read()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "localhost:9000", "127.0.0.1:{port}"])
def test_this_machines_names_are_served_also_through_a_tunnel(server: web.ViewServer, host: str) -> None:
    with ask(server, "/", host=host.format(port=server.port)) as answer:
        assert answer.status == 200


def test_updates_follow_the_stream(running: Pipeline, server: web.ViewServer) -> None:
    with streaming(running), ask(server, "/events") as answer:
        assert answer.headers["Content-Type"] == "text/event-stream"
        assert answer.headers["Cache-Control"] == "no-store"
        counts = [update["frames"]["ends"]["delivered"] for update, _ in zip(updates(answer), range(3), strict=False)]
    assert counts[0] < counts[1] < counts[2]


def test_a_page_that_comes_after_the_stream_has_its_numbers(running: Pipeline, server: web.ViewServer) -> None:
    list(running.map([IMAGE] * 5))
    running.close()
    with ask(server, "/events") as answer:
        update = next(updates(answer))
    assert (update["model"], update["state"]) == (NAME, "closed")
    assert update["frames"]["ends"]["delivered"] == 5


def test_nothing_is_asked_of_the_pipeline_until_somebody_looks(running: Pipeline) -> None:
    with mock.patch.object(running, "statistics", wraps=running.statistics) as read, web.serve(running) as server:
        with ask(server, "/") as answer:
            answer.read()
        assert read.call_count == 0
        with ask(server, "/events") as answer:
            next(updates(answer))
        assert read.call_count >= 1


def test_many_look_at_once_and_see_the_same(running: Pipeline, server: web.ViewServer) -> None:
    def look(_: int) -> list[int]:
        with ask(server, "/events") as answer:
            return [update["frames"]["submitted"] for update, _ in zip(updates(answer), range(3), strict=False)]

    with streaming(running), ThreadPoolExecutor(20) as pool:
        counts = list(pool.map(look, range(20)))
    assert all(len(each) == 3 and each == sorted(each) for each in counts)
    # Read once for all: far fewer different updates than twenty readers with three each.
    assert len({count for each in counts for count in each}) < 30


def test_one_who_leaves_in_the_middle_harms_nobody(running: Pipeline, server: web.ViewServer) -> None:
    with streaming(running), ask(server, "/events") as stays:
        messages = updates(stays)
        next(messages)
        for _ in range(3):
            rude = socket.create_connection(("127.0.0.1", server.port), timeout=60)
            rude.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert rude.recv(100)
            rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # leaves with a reset
            rude.close()
        assert next(messages)["state"] == next(messages)["state"] == "running"


def test_when_the_last_has_left_nothing_is_read_any_more(running: Pipeline) -> None:
    with mock.patch.object(running, "statistics", wraps=running.statistics) as read, web.serve(running) as server:
        with ask(server, "/events") as answer:
            next(updates(answer))
        count = -1
        while read.call_count != count:  # the reader's absence is noticed when it is written to
            count = read.call_count
            time.sleep(1)


def test_closing_sends_a_last_update_and_ends_the_stream(running: Pipeline, server: web.ViewServer) -> None:
    with ask(server, "/events") as answer:
        messages = updates(answer)
        assert next(messages)["frames"]["ends"]["delivered"] == 0
        list(running.map([IMAGE] * 7))
        server.close()
        assert list(messages)[-1]["frames"]["ends"]["delivered"] == 7


def test_closing_does_not_wait_for_one_who_does_not_read(running: Pipeline, server: web.ViewServer) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as stuck:
        stuck.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert stuck.recv(10)
        server.close()


def test_it_listens_on_loopback_only_and_stops_with_the_block(running: Pipeline) -> None:
    thread_count = threading.active_count()
    with observers_of(running) as observers, web.serve(running) as server:
        assert listening_addresses(server.port) == {"127.0.0.1"}
        assert len(observers) == 1
        assert server.url == f"http://127.0.0.1:{server.port}/"
    assert threading.active_count() == thread_count
    assert observers == []
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port), timeout=30)
    server.close()


def test_a_server_shows_one_pipeline_after_the_other(running: Pipeline) -> None:
    with observers_of(running) as observers, web.ViewServer() as server, ask(server, "/events") as answer:
        messages = updates(answer)
        assert next(messages) is None
        server.show(running)
        assert next(update for update in messages if update)["frames"]["submitted"] == 0
        with pipeline() as successor:
            list(successor.map([IMAGE] * 4))
            server.show(successor)
            assert observers == []
            assert next(update for update in messages if update["frames"]["submitted"])["frames"]["submitted"] == 4


def test_an_update_that_fails_is_logged_and_the_next_one_comes(
    running: Pipeline, server: web.ViewServer, caplog: pytest.LogCaptureFixture
) -> None:
    real = running.statistics
    answers = [RuntimeError("broken"), *([real()] * 1000)]
    with mock.patch.object(running, "statistics", side_effect=answers), ask(server, "/events") as answer:
        assert next(updates(answer))["model"] == NAME
    assert "could not be brought up to date" in caplog.text


def test_a_port_in_use_is_one_clear_error(running: Pipeline) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InputError, match=f"port {port}: another program uses it; give another, or 0"):
            web.serve(running, port)


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(running: Pipeline, port: int) -> None:
    with pytest.raises(InputError, match="from 1 to 65535"):
        web.serve(running, port)


def test_without_the_package_the_extra_is_named(running: Pipeline, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tornado", None)
    with pytest.raises(MissingExtra, match="pip install 'tornado<"):
        web.serve(running)


def test_a_forgotten_server_warns_and_stops(running: Pipeline) -> None:
    server: Any = web.serve(running)
    port = server.port
    with pytest.warns(ResourceWarning, match=f"127.0.0.1:{port}/ was not closed"):  # noqa: PT031 - both forget it
        del server
        collect()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=30)
