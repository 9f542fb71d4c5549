"""JSON Patch (RFC 6902) as an API server applies it: the operations that our programs send."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

_MISSING: Final = object()


class PatchError(ValueError):
    """An operation that cannot be applied, or a ``test`` that fails; says which and why."""


def patched(document: Any, operations: Sequence[Mapping[str, Any]]) -> Any:  # noqa: ANN401 -- JSON
    """Return *document* with all *operations*; raises :class:`PatchError` for one that fails."""
    result = copy.deepcopy(document)
    for operation in operations:
        _apply(result, operation)
    return result


def _apply(document: Any, operation: Mapping[str, Any]) -> None:  # noqa: ANN401 -- JSON
    verb, path = operation["op"], operation["path"]
    *parents, last = [_unescaped(step) for step in path.split("/")[1:]]
    parent = document
    for step in parents:
        parent = _child(parent, step, path)
    match verb:
        case "add":
            _add(parent, last, copy.deepcopy(operation["value"]))
        case "replace":
            _child(parent, last, path)
            parent[_key(parent, last)] = copy.deepcopy(operation["value"])
        case "remove":
            _child(parent, last, path)
            del parent[_key(parent, last)]
        case "test":
            if _child(parent, last, path) != operation["value"]:
                raise PatchError(f"test {path}: the value is another one")
        case _:
            raise PatchError(f"{verb} {path}: accepted: add, replace, remove and test")


def _unescaped(step: str) -> str:
    return step.replace("~1", "/").replace("~0", "~")


def _key(parent: Any, step: str) -> Any:  # noqa: ANN401 -- JSON
    return int(step) if isinstance(parent, list) else step


def _child(parent: Any, step: str, path: str) -> Any:  # noqa: ANN401 -- JSON
    found = _MISSING
    if isinstance(parent, dict):
        found = parent.get(step, _MISSING)
    elif isinstance(parent, list) and step.isdecimal() and int(step) < len(parent):
        found = parent[int(step)]
    if found is _MISSING:
        raise PatchError(f"{path}: there is no {step!r}")
    return found


def _add(parent: Any, step: str, value: Any) -> None:  # noqa: ANN401 -- JSON
    if isinstance(parent, dict):
        parent[step] = value
    elif isinstance(parent, list) and step == "-":
        parent.append(value)
    elif isinstance(parent, list) and step.isdecimal() and int(step) <= len(parent):
        parent.insert(int(step), value)
    else:
        raise PatchError(f"add: there is no place {step!r}")
