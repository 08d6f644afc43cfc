"""Live view: a browser page on a running pipeline."""

from pipeline.observe.web.server import ViewServer, serve

__all__ = ["ViewServer", "serve"]
