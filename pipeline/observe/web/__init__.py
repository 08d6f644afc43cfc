"""The live view: a page that shows in a browser what a running pipeline does."""

from pipeline.observe.web.server import ViewServer, serve

__all__ = ["ViewServer", "serve"]
