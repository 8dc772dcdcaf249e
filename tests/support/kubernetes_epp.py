"""The reference EPP with its pool from the Kubernetes API, as a program: `KUBECONFIG FILE HABIT ARGUMENT…`.

A thread lists and watches the pods, and writes the endpoints of those that are ready to FILE, which the reference EPP
reads. With the habit `returns` it connects again when the API is gone; with `gives-up` it never does. Each connection
that is refused adds a line to FILE.refused.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import yaml

from reference_epp.__main__ import main

PODS = "/api/v1/namespaces/default/pods"
SELECTED = {"app": "epp-conformance", "component": "model-server"}


def endpoint(pod: dict, port: int) -> str | None:
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))
    labels = pod["metadata"].get("labels", {})
    gone = "deletionTimestamp" in pod["metadata"]
    if not ready or gone or any(labels.get(name) != value for name, value in SELECTED.items()):
        return None
    return f"{pod['status']['podIP']}:{port}"


def pools(client: httpx.Client, file: Path) -> Iterator[None]:
    """Keep `file` equal to the pods, and yield after each change."""
    listed = client.get(PODS).json()
    found = client.get("/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools/pool").json()
    port = found["spec"]["targetPorts"][0]["number"]
    pods = {pod["metadata"]["name"]: endpoint(pod, port) for pod in listed["items"]}
    version = listed["metadata"]["resourceVersion"]
    with client.stream("GET", PODS, params={"watch": "1", "resourceVersion": version}, timeout=None) as watch:
        lines = watch.iter_lines()
        while True:
            beside = file.with_suffix(".new")
            beside.write_text("\n".join(filter(None, pods.values())))
            beside.replace(file)
            yield
            event = json.loads(next(lines))
            pod = event["object"]
            pods[pod["metadata"]["name"]] = endpoint(pod, port) if event["type"] != "DELETED" else None


def follow(server: str, file: Path, habit: str) -> None:
    with httpx.Client(base_url=server) as client:
        while True:
            try:
                for _ in pools(client, file):
                    pass
            except (httpx.HTTPError, StopIteration, RuntimeError) as problem:
                if isinstance(problem, httpx.ConnectError):
                    with file.with_suffix(".refused").open("a") as told:
                        told.write(f"{problem}\n")
                if habit == "gives-up" and file.exists():
                    return
            time.sleep(0.1)


if __name__ == "__main__":
    file, habit, *arguments = sys.argv[1:]
    server = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]["server"]
    Path(file).write_text("")
    Path(file).unlink()
    threading.Thread(target=follow, args=(server, Path(file), habit), daemon=True).start()
    sys.argv[1:] = ["--endpoints-file", file, *arguments]
    sys.exit(main())
