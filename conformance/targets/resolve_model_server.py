"""From what the user names (`--server`, `--profile` and the flags that override it) to a model server to be run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pydantic

from conformance.errors import UsageError
from conformance.targets.authority import no_authority
from conformance.targets.launch import command_start
from conformance.targets.model_server import ModelServerProfile
from conformance.targets.resolve import Overrides


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedModelServer:
    """A model server that can be run: its profile, and the values of placeholders that the command line gives."""

    profile: ModelServerProfile
    values: Mapping[str, str]


def resolve_model_server(
    server: str | None,
    profile: ModelServerProfile | None,
    overrides: Overrides,
    *,
    engine: str | None = None,
    model: str | None = None,
    metrics_url: str | None = None,
) -> ResolvedModelServer:
    """The model server that `--server` and `--profile` name, with what the other flags say. Raises `UsageError`."""
    if profile is None and server is None:
        raise UsageError("nothing says which model server is tested", hint="give --server URL, or --profile FILE|NAME")
    changes: dict[str, Any] = {} if profile is None else profile.model_dump(by_alias=True, exclude_unset=True)
    changes |= {"role": "model-server", "name": changes.get("name") or server or ""}
    if server is not None:
        changes |= _started(server, changes.get("start", {}))
    if engine is not None:
        changes["engine"] = engine
    if model is not None:
        changes["requests"] = {**changes.get("requests", {}), "model": model}
    if metrics_url is not None:
        changes["metrics"] = {**changes.get("metrics", {}), "url": metrics_url}
    if overrides.ca is not None:
        if wrong := no_authority(overrides.ca):
            raise UsageError(f"--ca: {wrong}")
        changes["ca"] = str(overrides.ca.absolute())
    try:
        found = ModelServerProfile.model_validate(changes, by_alias=True, by_name=True)
    except pydantic.ValidationError as problem:
        first = problem.errors()[0]
        flag, hint = _FLAGS.get(str(first["loc"][0]) if first["loc"] else "engine", ("--profile", ""))
        raise UsageError(f"{flag}: {str(first['msg']).removeprefix('Value error, ')}", hint=hint) from None
    if not found.started_by_us and "{" in found.url:
        raise UsageError(
            "the profile says neither how the model server is started nor where it runs",
            hint="add start.command to it, or give --server URL",
        )
    if overrides.binary is not None and "{binary}" not in found.start.model_dump_json():
        raise UsageError("--binary has no place in this target", hint="its command needs {binary}")
    return ResolvedModelServer(profile=found, values={} if overrides.binary is None else {"binary": overrides.binary})


def _started(server: str, start: Mapping[str, Any]) -> dict[str, Any]:
    """What `--server` changes in a profile: how the server is started, or where it runs."""
    kept = {key: value for key, value in start.items() if key in ("env", "workdir", "network")}
    scheme, _, rest = server.partition(":")
    if scheme == "cmd":
        return {"start": {**kept, "command": command_start(rest).command}}
    if scheme == "image":
        if not rest.strip():
            raise UsageError("image: needs the name of an image", hint="for example --server image:registry/server")
        args = {"args": start["args"]} if start.get("image") and "args" in start else {}  # run as the profile's is
        return {"start": {**kept, **args, "image": rest.strip()}}
    return {"url": server, "start": {}}


_FLAGS = {
    "url": ("--server", "for example --server http://127.0.0.1:8000, 'cmd:./server --port {port}' or image:IMAGE"),
    "metrics": ("--metrics-url", "for example --metrics-url :8002/metrics"),
    "engine": ("--engine", "one of vllm, sglang, trtllm-serve, triton-tensorrt-llm; other names: in a profile"),
}
"""Flags and examples for the parts of a profile that flags set."""
