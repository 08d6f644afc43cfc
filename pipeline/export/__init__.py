"""Stages in the forms of other runtimes and vendors' compilers."""

# Whichever module of this room comes first: without this door TVM would put its hooks in place.
import pipeline.tvm.access  # noqa: F401
