"""Patches by content type: JSON Patch (RFC 6902), merge patch (RFC 7386), and the two Kubernetes forms.

A strategic merge patch is applied as a merge patch with its directives (`$patch`, `$setElementOrder/…`) left out:
lists are replaced, not merged by key. An apply patch (server-side apply) is applied as a merge patch; field ownership
is not kept.
"""

from __future__ import annotations

import copy
import json
from typing import Any

from fake_kubernetes.errors import ApiError

__all__ = ["APPLY", "apply_patch"]

JSON_PATCH = "application/json-patch+json"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"


def apply_patch(content_type: str, obj: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return `obj` with `patch` applied; `obj` is left alone.

    Raises ApiError: 415 for another content type, 400 for a patch that is no patch, 422 for one that does not fit.
    """
    if content_type == JSON_PATCH:
        if not isinstance(patch, list):
            raise ApiError.bad_request("a JSON patch must be a list of operations")
        result = copy.deepcopy(obj)
        for number, operation in enumerate(patch):
            try:
                result = _operate(result, operation)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise ApiError.invalid("patch", str(number), json.dumps(operation), str(error)) from error
    elif content_type in (MERGE, STRATEGIC, APPLY):
        result = _merge(obj, patch, directives=content_type == STRATEGIC)
    else:
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"the patch has content type {content_type!r}; supported: {JSON_PATCH}, {MERGE}, {STRATEGIC}, {APPLY}",
        )
    if not isinstance(result, dict):
        raise ApiError.bad_request("the patch does not leave an object")
    return result


def _merge(target: Any, patch: Any, *, directives: bool) -> Any:
    if directives and isinstance(patch, list):
        return [_merge(None, item, directives=True) for item in patch]
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if directives and key.startswith("$"):
            continue
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merge(result.get(key), value, directives=directives)
    return result


def _operate(document: Any, operation: Any) -> Any:
    path = _pointer(operation["path"])
    match operation["op"]:
        case "add":
            return _put(document, path, operation["value"], insert=True)
        case "replace":
            _get(document, path)
            return _put(document, path, operation["value"], insert=False)
        case "remove":
            return _remove(document, path)
        case "move":
            source = _pointer(operation["from"])
            if path[: len(source)] == source and path != source:
                raise ValueError("a value can't be moved into itself")
            value = _get(document, source)
            return _put(_remove(document, source), path, value, insert=True)
        case "copy":
            return _put(document, path, copy.deepcopy(_get(document, _pointer(operation["from"]))), insert=True)
        case "test":
            if not _same(_get(document, path), operation["value"]):
                raise ValueError("the value differs from the one tested for")
            return document
        case other:
            raise ValueError(f"unknown operation {other!r}")


def _same(left: Any, right: Any) -> bool:
    # Python holds True == 1; JSON does not.
    return json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True)


def _pointer(text: Any) -> list[str]:
    if not isinstance(text, str) or (text and not text.startswith("/")):
        raise ValueError(f"{text!r} is not a JSON pointer")
    return [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]


def _index(container: list[Any], part: str, *, end: int) -> int:
    if not part.isascii() or not part.isdigit() or (len(part) > 1 and part[0] == "0"):
        raise ValueError(f"{part!r} is not an index")
    if int(part) >= end:
        raise IndexError(f"index {part} is out of range, the list has {len(container)}")
    return int(part)


def _get(document: Any, path: list[str]) -> Any:
    for part in path:
        if isinstance(document, list):
            document = document[_index(document, part, end=len(document))]
        elif isinstance(document, dict) and part in document:
            document = document[part]
        else:
            raise KeyError(f"nothing at {part!r}")
    return document


def _put(document: Any, path: list[str], value: Any, *, insert: bool) -> Any:
    value = copy.deepcopy(value)
    if not path:
        return value
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, dict):
        parent[last] = value
    elif not isinstance(parent, list):
        raise TypeError(f"nothing can be put under {path[:-1]}")
    elif not insert:
        parent[_index(parent, last, end=len(parent))] = value
    elif last == "-":
        parent.append(value)
    else:
        parent.insert(_index(parent, last, end=len(parent) + 1), value)
    return document


def _remove(document: Any, path: list[str]) -> Any:
    if not path:
        return None
    _get(document, path)
    parent, last = _get(document, path[:-1]), path[-1]
    if isinstance(parent, list):
        del parent[int(last)]
    else:
        del parent[last]
    return document
