"""The face of the API server: each request is logged, meets the faults, and goes to discovery, objects or reviews."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from fake_kubernetes import discovery
from fake_kubernetes.errors import ApiError
from fake_kubernetes.faults import Faults
from fake_kubernetes.kinds import Review
from fake_kubernetes.log import KEPT_REQUESTS, RequestRecord
from fake_kubernetes.media import AGGREGATED_TYPE, Form, negotiate
from fake_kubernetes.objects import Objects, flag
from fake_kubernetes.routes import ObjectRoute, route
from fake_kubernetes.server import ApiAnswer, ApiRequest
from fake_kubernetes.store import Store
from fake_kubernetes.watch import Watches

__all__ = ["Api"]

_log = logging.getLogger(__name__)

_COLLECTION_VERBS = {"POST": "create", "DELETE": "deletecollection"}
_OBJECT_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Api:
    """Turns requests into answers. `requests` is the log; `on_request` is told of each request once it is answered."""

    def __init__(self, store: Store, watches: Watches, *, on_request: Callable[[RequestRecord], None]) -> None:
        self.requests: deque[RequestRecord] = deque(maxlen=KEPT_REQUESTS)
        self._store = store
        self._watches = watches
        self._objects = Objects(store, watches)
        self._on_request = on_request
        self._count = 0

    @property
    def _faults(self) -> Faults:
        return self._watches.faults

    async def answer(self, request: ApiRequest) -> ApiAnswer:
        """Return the answer to any request; refusals are `Status` documents. Never raises but for cancellation."""
        self._count += 1
        record = RequestRecord(
            number=self._count,
            method=request.method,
            path=request.path,
            query=request.query,
            user_agent=request.headers.get("user-agent", ""),
            accept=request.headers.get("accept", ""),
        )
        self.requests.append(record)
        if self._faults.delay:
            await asyncio.sleep(self._faults.delay)
        try:
            answer = self._dispatch(request, record)
        except ApiError as error:
            answer = ApiAnswer(status=error.code, body=error.body())
            record.message = error.message
        except Exception as error:  # noqa: BLE001 - a client gets an answer, whatever is wrong with the emulator
            _log.exception("the emulator failed on %s %s", request.method, request.path)
            record.message = f"the emulator failed: {error!r}"
            answer = ApiAnswer(status=500, body=ApiError(500, "InternalError", record.message).body())
        record.status = answer.status
        self._on_request(record)
        return answer

    def _dispatch(self, request: ApiRequest, record: RequestRecord) -> ApiAnswer:
        target = route(self._store.catalogue, request.path)
        if target is None:
            self._fail_if_asked("discovery")
            return self._about_itself(request)
        if isinstance(target, Review):
            if request.method != "POST":
                raise _not_allowed(request)
            self._fail_if_asked("create")
            return _review(target, request.body)
        verb = _verb(target, request)
        self._fail_if_asked(verb)
        match verb:
            case "watch":
                return self._objects.watch(target, request, record)
            case "list":
                return self._objects.list(target, request)
            case "get":
                return self._objects.get(target, request)
            case "create":
                return self._objects.create(target, request)
            case "update":
                return self._objects.update(target, request)
            case "patch":
                return self._objects.patch(target, request)
            case "delete":
                return self._objects.delete(target, request)
            case _:
                return self._objects.delete_collection(target, request)

    def _fail_if_asked(self, verb: str) -> None:
        if verb in self._faults.failing:
            raise ApiError(500, "InternalError", f"Internal error occurred: the fault is on that fails every {verb}")

    def _about_itself(self, request: ApiRequest) -> ApiAnswer:
        if request.method != "GET":
            raise ApiError.no_such_path(request.path)
        catalogue = self._store.catalogue
        document: dict[str, Any] | None = None
        match request.path.strip("/").split("/"):
            case ["healthz" | "readyz" | "livez", *_]:
                return ApiAnswer(body=b"ok", content_type="text/plain; charset=utf-8")
            case ["version"]:
                document = discovery.VERSION
            case ["api" | "apis" as root]:
                if negotiate(request.headers.get("accept", ""), (Form.PLAIN, Form.AGGREGATED)) is Form.AGGREGATED:
                    body = json.dumps(discovery.aggregated(catalogue, core=root == "api")).encode()
                    return ApiAnswer(body=body, content_type=AGGREGATED_TYPE)
                document = discovery.api_versions() if root == "api" else discovery.group_list(catalogue)
            case ["api", version]:
                document = discovery.resource_list(catalogue, "", version)
            case ["apis", group]:
                document = discovery.group(catalogue, group)
            case ["apis", group, version]:
                document = discovery.resource_list(catalogue, group, version)
            case ["openapi", "v2"]:  # kubectl before 1.27 reads it before it creates: an empty document, in protobuf
                return ApiAnswer(body=b"", content_type=discovery.OPENAPI_V2_TYPE)
            case ["openapi", "v3"]:
                document = discovery.openapi_index(catalogue)
            case ["openapi", "v3", "api", version]:
                document = discovery.openapi_document(catalogue, "", version)
            case ["openapi", "v3", "apis", group, version]:
                document = discovery.openapi_document(catalogue, group, version)
        if document is None:
            raise ApiError.no_such_path(request.path)
        return ApiAnswer(body=json.dumps(document).encode())


def _verb(target: ObjectRoute, request: ApiRequest) -> str:
    verbs = _OBJECT_VERBS if target.name else _COLLECTION_VERBS
    verb = verbs.get(request.method)
    if verb is None and request.method == "GET":
        return "watch" if flag(request.query, "watch") else "list"
    create_without_namespace = verb == "create" and target.kind.namespaced and target.namespace is None
    if verb is None or create_without_namespace or (target.subresource and verb == "delete"):
        raise _not_allowed(request)
    return verb


def _not_allowed(request: ApiRequest) -> ApiError:
    return ApiError(405, "MethodNotAllowed", f"{request.method} is not supported on {request.path}")


def _review(review: Review, body: bytes) -> ApiAnswer:
    """The answer, with the question where that can be read: some clients check that a token review names a token."""
    try:
        spec = json.loads(body)["spec"]
    except (ValueError, TypeError, KeyError):
        spec = {}
    document = {
        "kind": review.kind,
        "apiVersion": f"{review.group}/{review.version}",
        "metadata": {"creationTimestamp": None},
        "spec": spec,
        "status": review.answer,
    }
    return ApiAnswer(status=201, body=json.dumps(document).encode())
