"""The reference EPP with its pool from the Kubernetes API, as a program: `KUBECONFIG FILE HABIT ARGUMENT…`.

It follows pods, pool and InferenceModels as informers of client-go do: it lists and watches, watches on from the last
version when a watch is over, and lists again when that version has expired. The endpoints go to FILE, which the
reference EPP reads. HABIT names a class of `HABITS`: `returns` is right, most others are wrong in one respect. Each
connection that is refused adds a line to FILE.refused.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import httpx
import yaml

from reference_epp.__main__ import main
from reference_epp.conversation import Conversation

NAMESPACE = "/namespaces/default"
GROUP = "/apis/inference.networking.k8s.io/v1"
POOLS = f"{GROUP}{NAMESPACE}/inferencepools"
MODELS = "/apis/inference.networking.x-k8s.io/v1alpha2"
AGAIN = 0.1
"""Seconds until it connects again."""

HABITS: dict[str, type[Returns]] = {}


class ExpiredError(Exception):
    """The history from the last version on is gone."""


class OverError(Exception):
    """It follows no longer."""


class Returns:
    """The right way."""

    pool_path = POOLS
    pods_path = f"/api/v1{NAMESPACE}/pods"

    def __init_subclass__(cls) -> None:
        HABITS["".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__)[1:]] = cls

    def __init__(self, server: str, file: Path) -> None:
        self.server = server
        self.file = file
        self.pods: dict[str, dict] = {}
        self.pool: dict | None = None
        self.models: dict[tuple[str, str], str] = {}
        self.lock = threading.Lock()

    # -- what is read --------------------------------------------------------------------------------------------------

    def key(self, pod: dict) -> str:
        return pod["metadata"]["name"]

    def ready(self, pod: dict) -> bool:
        return condition(pod, "Ready") == "True" and "deletionTimestamp" not in pod["metadata"]

    def pods_listed(self, pods: Iterable[dict]) -> None:
        self.pods = {self.key(pod): pod for pod in pods}

    def pod_changed(self, change: str, pod: dict) -> None:
        if change == "DELETED":
            self.pods.pop(self.key(pod), None)
        else:
            self.pods[self.key(pod)] = pod

    def pools_listed(self, pools: Iterable[dict]) -> None:
        self.pool = next((pool for pool in pools if pool["metadata"]["name"] == "pool"), None)

    def pool_changed(self, change: str, pool: dict) -> None:
        if pool["metadata"]["name"] == "pool":
            self.pool = pool if change != "DELETED" else None

    def write(self) -> None:
        found = []
        if self.pool is not None:
            labels = self.pool["spec"]["selector"]["matchLabels"].items()
            ports = self.ports([port["number"] for port in self.pool["spec"]["targetPorts"]])
            chosen = [pod for pod in self.pods.values() if labels <= pod["metadata"].get("labels", {}).items()]
            addresses = [address(pod) for pod in chosen if self.ready(pod)]
            found = [f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in addresses for port in ports]
        beside = self.file.with_suffix(".new")
        beside.write_text("\n".join(found))
        beside.replace(self.file)

    def ports(self, numbers: list[int]) -> Iterable[int]:
        return numbers

    models_path = f"{MODELS}{NAMESPACE}/inferencemodels"

    def references(self, model: dict) -> bool:
        """Whether an InferenceModel is of this pool."""
        return model["spec"]["poolRef"]["name"] == "pool"

    def key_of(self, model: dict) -> tuple[str, str]:
        return model["metadata"]["namespace"], model["metadata"]["name"]

    def models_listed(self, models: Iterable[dict]) -> None:
        self.models = {self.key_of(model): model["spec"]["modelName"] for model in models if self.references(model)}

    def model_changed(self, change: str, model: dict) -> None:
        if change != "DELETED" and self.references(model):
            self.models = self.models | {self.key_of(model): model["spec"]["modelName"]}
        else:
            self.models = {key: name for key, name in self.models.items() if key != self.key_of(model)}

    def knows(self, model: str) -> bool:
        return model in self.models.values()

    # -- how it is read ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        for path, listed, changed in (
            (self.pool_path, self.pools_listed, self.pool_changed),
            (self.pods_path, self.pods_listed, self.pod_changed),
            (self.models_path, self.models_listed, self.model_changed),
        ):
            threading.Thread(target=self.follow, args=(path, listed, changed), daemon=True).start()

    def follow(self, path: str, listed, changed) -> None:
        with httpx.Client(base_url=self.server, timeout=None) as client:
            version = ""
            while True:
                try:
                    if not version:
                        version = self.list(client, path, listed)
                    for reached in self.watch(client, path, version, changed):
                        version = reached
                    version = self.after_the_end(version)
                except ExpiredError:
                    version = self.after_expiry(version)
                except httpx.HTTPError as problem:
                    version = self.after_trouble(problem, version)
                except OverError:
                    return
                threading.Event().wait(AGAIN)

    def list(self, client: httpx.Client, path: str, listed) -> str:
        answer = client.get(path).raise_for_status().json()
        with self.lock:
            listed(answer["items"])
            self.write()
        return answer["metadata"]["resourceVersion"]

    def watch(self, client: httpx.Client, path: str, version: str, changed) -> Iterable[str]:
        """Take the changes, and yield the version after each."""
        query = {"watch": "1", "allowWatchBookmarks": "true", "resourceVersion": version}
        with client.stream("GET", path, params=query) as answer:
            answer.raise_for_status()
            for line in self.lines(answer):
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise ExpiredError
                if not self.is_bookmark(event):
                    with self.lock:
                        changed(event["type"], event["object"])
                        self.write()
                yield event["object"]["metadata"]["resourceVersion"]

    def lines(self, answer: httpx.Response) -> Iterable[str | bytes]:
        return answer.iter_lines()

    def is_bookmark(self, event: dict) -> bool:
        return event["type"] == "BOOKMARK"

    def after_the_end(self, version: str) -> str:
        return version

    def after_expiry(self, version: str) -> str:
        return ""

    def after_trouble(self, problem: httpx.HTTPError, version: str) -> str:
        if isinstance(problem, httpx.ConnectError):
            with self.file.with_suffix(".refused").open("a") as told:
                told.write(f"{problem}\n")
        return version


def condition(pod: dict, kind: str) -> str | None:
    return next((one["status"] for one in pod["status"].get("conditions", ()) if one["type"] == kind), None)


def address(pod: dict) -> str:
    return pod["status"].get("podIP", "")


HABITS["returns"] = Returns

# -- right in another way ----------------------------------------------------------------------------------------------


class ListsAfterEachWatch(Returns):
    def after_the_end(self, version: str) -> str:
        return ""

    def after_trouble(self, problem: httpx.HTTPError, version: str) -> str:
        return super().after_trouble(problem, "")


class ComparesVersions(Returns):
    """As clients do that hold back what is older: for numbers that is right."""

    def version(self, pod: dict) -> int | str:
        return int(pod["metadata"]["resourceVersion"])

    def pod_changed(self, change: str, pod: dict) -> None:
        known = self.pods.get(self.key(pod))
        if known is None or self.version(pod) > self.version(known):
            super().pod_changed(change, pod)


class TakesItsTime(Returns):
    """One change after the other."""

    def pod_changed(self, change: str, pod: dict) -> None:
        threading.Event().wait(0.1)
        super().pod_changed(change, pod)

    def model_changed(self, change: str, model: dict) -> None:
        threading.Event().wait(0.3)
        super().model_changed(change, model)


class ReadsModelsNowAndThen(Returns):
    """It lists them, and does not watch them."""

    def watch(self, client: httpx.Client, path: str, version: str, changed) -> Iterable[str]:
        return iter(()) if path == self.models_path else super().watch(client, path, version, changed)

    def after_the_end(self, version: str) -> str:
        return ""


# -- wrong: how it is read ---------------------------------------------------------------------------------------------


class GivesUp(Returns):
    def after_trouble(self, problem: httpx.HTTPError, version: str) -> str:
        raise OverError


class EndsWithItsWatch(Returns):
    def after_the_end(self, version: str) -> str:
        raise OverError


class TakesBookmarksForPods(Returns):
    """A bookmark has no name: that ends its thread."""

    def is_bookmark(self, event: dict) -> bool:
        return False


class TakesPiecesForEvents(Returns):
    """And skips those that are none."""

    def lines(self, answer: httpx.Response) -> Iterable[str | bytes]:
        for piece in answer.iter_raw():
            with contextlib.suppress(ValueError):
                json.loads(piece)
                yield piece


class SkipsLongLines(Returns):
    def lines(self, answer: httpx.Response) -> Iterable[str | bytes]:
        return (line for line in answer.iter_lines() if len(line.encode()) < 8192)


class NeverListsAgain(Returns):
    """From an expired version it watches again and again."""

    def after_expiry(self, version: str) -> str:
        return version


class KeepsWhatAListHasNot(Returns):
    def pods_listed(self, pods: Iterable[dict]) -> None:
        self.pods |= {self.key(pod): pod for pod in pods}


class ComparesVersionsAsText(ComparesVersions):
    def version(self, pod: dict) -> int | str:
        return pod["metadata"]["resourceVersion"]


# -- wrong: what a pod is ----------------------------------------------------------------------------------------------


class ReadsTheFirstCondition(Returns):
    def ready(self, pod: dict) -> bool:
        found = [one["status"] for one in pod["status"].get("conditions", ())]
        return found[:1] == ["True"] and "deletionTimestamp" not in pod["metadata"]


class TakesListedPodsForReady(Returns):
    """Looks at readiness when a pod changes, and not in lists."""

    def pods_listed(self, pods: Iterable[dict]) -> None:
        super().pods_listed(pods)
        self.listed = list(self.pods.values())

    def ready(self, pod: dict) -> bool:
        return any(one is pod for one in self.listed) or super().ready(pod)


class TakesAnyPool(Returns):
    """Of its namespace: the one that was changed last."""

    def pool_changed(self, change: str, pool: dict) -> None:
        self.pool = pool if change != "DELETED" else None


class ForgetsByPartsOfNames(Returns):
    """With a pod those go whose names have its name in them."""

    def pod_changed(self, change: str, pod: dict) -> None:
        super().pod_changed(change, pod)
        if change == "DELETED":
            self.pods = {name: one for name, one in self.pods.items() if not name.startswith(self.key(pod))}


class ReadsThePhase(Returns):
    def ready(self, pod: dict) -> bool:
        return pod["status"]["phase"] == "Running" and "deletionTimestamp" not in pod["metadata"]


class ReadsAllContainers(Returns):
    def ready(self, pod: dict) -> bool:
        every = [one["ready"] for one in pod["status"].get("containerStatuses", ())]
        return bool(every) and all(every) and "deletionTimestamp" not in pod["metadata"]


class IgnoresDeletion(Returns):
    def ready(self, pod: dict) -> bool:
        return condition(pod, "Ready") == "True"


class GoesByAddress(Returns):
    def key(self, pod: dict) -> str:
        return address(pod) or pod["metadata"]["name"]


class KeepsTheAddress(Returns):
    """Of a name that it knows."""

    def pod_changed(self, change: str, pod: dict) -> None:
        if change != "DELETED":
            pod = self.as_known(pod)
        super().pod_changed(change, pod)

    def pods_listed(self, pods: Iterable[dict]) -> None:
        super().pods_listed([self.as_known(pod) for pod in pods])

    def as_known(self, pod: dict) -> dict:
        known = self.pods.get(self.key(pod))
        if known is not None and address(known):
            pod["status"]["podIP"] = address(known)
        return pod


class PassesOverPodsWithoutAPool(Returns):
    """And keeps those that it had."""

    def pod_changed(self, change: str, pod: dict) -> None:
        if self.pool is not None:
            super().pod_changed(change, pod)


class ReadsThePoolOnce(Returns):
    def pool_changed(self, change: str, pool: dict) -> None:
        pass


class KeepsItsSelector(Returns):
    def pool_changed(self, change: str, pool: dict) -> None:
        if self.pool is not None:
            pool["spec"]["selector"] = self.pool["spec"]["selector"]
        super().pool_changed(change, pool)


class CountsThePorts(Returns):
    """As many ports as before are taken for the same ones."""

    def pool_changed(self, change: str, pool: dict) -> None:
        if self.pool is not None and len(self.pool["spec"]["targetPorts"]) == len(pool["spec"]["targetPorts"]):
            pool["spec"]["targetPorts"] = self.pool["spec"]["targetPorts"]
        super().pool_changed(change, pool)


class CountsOnFromTheFirstPort(Returns):
    def ports(self, numbers: list[int]) -> Iterable[int]:
        return range(numbers[0], numbers[0] + len(numbers))


class TakesTheFirstPool(Returns):
    def pools_listed(self, pools: Iterable[dict]) -> None:
        self.pool = next(iter(pools), None)


class LooksInEveryNamespace(Returns):
    pods_path = "/api/v1/pods"


class TakesModelsOfEveryPool(Returns):
    def references(self, model: dict) -> bool:
        return True


class TakesModelsOfEveryNamespace(Returns):
    models_path = f"{MODELS}/inferencemodels"


# -- wrong: which models it knows --------------------------------------------------------------------------------------


class NeverLearnsModels(Returns):
    """It reads them when it starts."""

    known: frozenset[str] = frozenset()

    def models_listed(self, models: Iterable[dict]) -> None:
        super().models_listed(models)
        self.known = frozenset(self.models.values())

    def knows(self, model: str) -> bool:
        return model in self.known


class KeepsDeletedModels(Returns):
    def model_changed(self, change: str, model: dict) -> None:
        if change != "DELETED":
            super().model_changed(change, model)


class ForgetsAModelWithTheFirstThatGoes(Returns):
    """Though another InferenceModel names it, too."""

    def model_changed(self, change: str, model: dict) -> None:
        super().model_changed(change, model)
        if change == "DELETED":
            said = model["spec"]["modelName"]
            self.models = {key: name for key, name in self.models.items() if name != said}


if __name__ == "__main__":
    file, habit, *arguments = sys.argv[1:]
    server = yaml.safe_load(Path(os.environ["KUBECONFIG"]).read_text())["clusters"][0]["cluster"]["server"]
    Path(file).write_text("")
    Path(file).unlink()
    reader = HABITS[habit](server, Path(file))
    reader.start()
    Conversation.knows = lambda _, model: reader.knows(model)
    sys.argv[1:] = ["--endpoints-file", file, "--model=any", *arguments]  # with none given it would refuse none
    sys.exit(main())
