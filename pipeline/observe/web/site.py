"""Site: files and events by address, for local callers; needs Tornado."""

from __future__ import annotations

from importlib import resources
from typing import Any

from tornado.iostream import StreamClosedError
from tornado.web import Application, HTTPError, RequestHandler

from pipeline.observe.local_server import is_local_name
from pipeline.observe.web.feed import Feed

# The page needs nothing from elsewhere, so that nothing from elsewhere may run in it or embed it.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    # Another release may serve another page at the same port.
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    # Pages of other origins cannot load it as an image or script, and so learn nothing of it.
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/view.css": ("view.css", "text/css; charset=utf-8"),
    "/view.js": ("view.js", "text/javascript; charset=utf-8"),
    "/graph.js": ("graph.js", "text/javascript; charset=utf-8"),
    "/application.js": ("application.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
}


def application(feed: Feed) -> Application:
    """Return the site of a feed."""
    pages = [(address, _File, {"name": name, "kind": kind}) for address, (name, kind) in FILES.items()]
    return Application(
        [*pages, ("/events", _Events, {"feed": feed})],
        default_handler_class=_MissingPage,
        log_function=lambda _: None,
    )


class _PageHandler(RequestHandler):
    def set_default_headers(self) -> None:
        # Which release of Tornado serves is nobody's business.
        self.clear_header("Server")
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def prepare(self) -> None:
        # A foreign page could have its own name point here.
        if not is_local_name(self.request.host):
            raise HTTPError(403, reason="Open this page as http://127.0.0.1 or http://localhost")

    def write_error(self, status_code: int, **_: Any) -> None:
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(f"{status_code} {self._reason}\n")


class _File(_PageHandler):
    def initialize(self, name: str, kind: str) -> None:
        self._name, self._kind = name, kind

    def get(self) -> None:
        self.set_header("Content-Type", self._kind)
        self.finish(resources.files("pipeline.observe.web").joinpath("page").joinpath(self._name).read_bytes())

    head = get


class _Events(_PageHandler):
    def initialize(self, feed: Feed) -> None:
        self._feed = feed

    async def get(self) -> None:
        self.set_header("Content-Type", "text/event-stream")
        self._feed.join()
        try:
            # Browsers connect again by themselves; every two seconds is soon enough.
            self.write("retry: 2000\n\n")
            await self.flush()
            while (message := await self._feed.next()) is not None:
                self.write(message)
                await self.flush()
        except StreamClosedError:
            pass  # the reader has left
        finally:
            # Whatever ends the connection, or updates would be made for nobody.
            self._feed.leave()


class _MissingPage(_PageHandler):
    def prepare(self) -> None:
        # Foreign names are told nothing, not even that a page is missing.
        super().prepare()
        raise HTTPError(404)
