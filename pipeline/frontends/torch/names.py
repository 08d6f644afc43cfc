"""Names in an exported program, as its authors know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.utils import _pytree as pytree

from pipeline.model.passes.naming import unique

Tensors = Mapping[str, str]
"""Tensors of the program's nodes."""


def of_model(program: Any) -> str:
    """Return the class of the exported module."""
    # The first module of any node's stack is the one that was exported.
    for node in program.graph.nodes:
        if stack := node.meta.get("nn_module_stack"):
            kind = next(iter(stack.values()))[1]
            return str(getattr(kind, "__name__", kind)).rpartition(".")[2]
    return "program"


def of_node(node: Any) -> str:
    """Return a node's name, or its origin's, in the exported program."""
    source = node.meta.get("from_node")
    return str(source[-1].name if source else node.name)


def of_outputs(program: Any) -> list[str]:
    """Return the outputs' names: a returned mapping's keys, or the nodes'."""
    specs = [spec.arg for spec in program.graph_signature.output_specs if spec.kind.name == "USER_OUTPUT"]
    # Numbers in place of tensors: the path of each number is the path of that output.
    structure = pytree.tree_unflatten(list(range(len(specs))), program.call_spec.out_spec)
    paths = {leaf: path for path, leaf in pytree.tree_flatten_with_path(structure)[0]}
    used_names: set[str] = set()
    return [
        unique(_key(paths.get(number, ())) or str(spec.name), used_names)
        for number, spec in enumerate(specs)
        if getattr(spec, "name", None) and not hasattr(spec, "value")
    ]


def _key(path: Any) -> str:
    keys = [getattr(key, "key", getattr(key, "name", None)) for key in path]
    names = [key for key in keys if isinstance(key, str)]
    # Positions in lists are no names; an output with one keeps its node's name.
    return ".".join(names) if len(names) == len(keys) else ""


def of_operators(modules: Tensors) -> dict[str, str]:
    """Name the results of innermost modules after these."""
    # A module that has others is made of several operators, none of which is the module.
    parents = {path.rpartition(".")[0] for path in modules}
    return {tensor: path for path, tensor in modules.items() if path not in parents}


def of_modules(program: Any, tensors: Tensors) -> dict[str, str]:
    """Return each module's last tensor, without names of tensors."""
    tensor_names = set(tensors.values())
    ends: dict[str, str] = {}
    for node in program.graph.nodes:
        if (tensor := tensors.get(node.name)) is None:
            continue
        for key, (path, _) in (node.meta.get("nn_module_stack") or {}).items():
            # A module that is called again has the number of the call in its key.
            call_suffix = f"@{key.rpartition('@')[2]}" if "@" in key else ""
            ends[path + call_suffix] = tensor
    return {path: tensor for path, tensor in ends.items() if path and path not in tensor_names}
