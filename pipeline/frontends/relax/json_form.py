"""The JSON of ``tvm.ir.save_json``: checked, then read by TVM."""

from __future__ import annotations

import json
from typing import Any

import tvm

from pipeline.errors import reason
from pipeline.frontends.relax import schema


def parse(text: str) -> Any:
    """Return the object of a JSON text; `ValueError` if it is no JSON, or is not consistent."""
    try:
        # TVM ends the process on some texts that are no JSON.
        schema.check(json.loads(text))
        return tvm.ir.load_json(text)
    except RecursionError:
        raise ValueError("it nests deeper than is supported") from None
    except Exception as error:  # TVM raises what its classes' checks meet
        raise ValueError(reason(error)) from error
