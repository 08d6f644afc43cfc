"""Model -> graph -> cuts -> stages."""

# Whichever module of this room comes first: without this door TVM would put its hooks in place.
import pipeline.core.tvm_access  # noqa: F401
