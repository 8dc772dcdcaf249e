"""The verbs on objects: get, list, watch, create, update, patch, delete, deletecollection.

Differences from a real API server, on purpose: `status` may be written together with the rest (there is no kubelet or
controller here that would), specs are not validated against schemas, and lists are never split into pages.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import Any

from fake_kubernetes import protobuf_body
from fake_kubernetes.errors import ApiError
from fake_kubernetes.kinds import EVENTS, PODS, Kind
from fake_kubernetes.log import RequestRecord, WatchRecord
from fake_kubernetes.media import Form, negotiate
from fake_kubernetes.patches import APPLY, apply_patch
from fake_kubernetes.routes import ObjectRoute
from fake_kubernetes.selectors import FieldSelector, LabelSelector, ObjectSelection, SelectorError
from fake_kubernetes.server import ApiAnswer, ApiRequest, StreamedAnswer
from fake_kubernetes.store import Change, Object, Store
from fake_kubernetes.views import render, render_list
from fake_kubernetes.watch import OpenWatch, Watches, WatchOptions

__all__ = ["Objects", "flag"]

WATCH_SECONDS = 1_800.0  # when the client names no timeout
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_FORMS = (Form.PLAIN, Form.TABLE, Form.METADATA)
_SYSTEM_FIELDS = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


class Objects:
    """Answers HTTP requests from a store. Every method raises ApiError for what a real server would refuse."""

    def __init__(self, store: Store, watches: Watches) -> None:
        self._store = store
        self._watches = watches

    # -- reading -------------------------------------------------------------------------------------------------------

    def get(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Answer with one object."""
        return self._object(at.kind, self._existing(at).encoded, request)

    def list(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Answer with all selected objects at the present resource version; `limit` and `continue` change nothing."""
        form = negotiate(request.headers.get("accept", ""), _FORMS)
        _check_list(request.query)
        asked = self._resource_version(request.query)
        now = self._store.resource_version
        if request.query.get("resourceVersionMatch") == "Exact" and asked not in (None, now):
            raise ApiError(410, "Expired", f"only the present state ({now}) can be listed, not that of {asked}")
        selection = _selection(at, request.query)
        encoded = [
            change.encoded for change in self._store.list(at.kind, at.namespace) if selection.matches(change.object)
        ]
        include = request.query.get("includeObject", "Metadata")
        answer = ApiAnswer(body=render_list(at.kind, encoded, now, form, include_object=include))
        self._watches.listed(at.kind, now)
        return answer

    def watch(self, at: ObjectRoute, request: ApiRequest, record: RequestRecord) -> ApiAnswer:
        """Answer with the stream of a watch, and note it in `record`."""
        query = request.query
        form = negotiate(request.headers.get("accept", ""), _FORMS)
        start = self._resource_version(query)
        initial, mark = start is None, False
        if "sendInitialEvents" in query:
            if query.get("resourceVersionMatch") != "NotOlderThan":
                why = "sendInitialEvents requires resourceVersionMatch=NotOlderThan"
                raise ApiError.invalid("ListOptions", "", "resourceVersionMatch", why)
            if self._watches.faults.refuse_watch_list:
                why = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
                raise ApiError.invalid("ListOptions", "", "sendInitialEvents", why)
            initial = flag(query, "sendInitialEvents")
            mark = initial and flag(query, "allowWatchBookmarks")
        elif "resourceVersionMatch" in query:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            raise ApiError.invalid("ListOptions", "", "resourceVersionMatch", why)
        if not initial and start is None:
            start = self._store.resource_version
        options = WatchOptions(
            start=None if initial else start,
            mark_initial_end=mark,
            bookmarks=flag(query, "allowWatchBookmarks"),
            timeout=_seconds(query) or WATCH_SECONDS,
            form=form,
            include_object=query.get("includeObject", "Metadata"),
        )
        record.watch = WatchRecord(kind=at.kind, namespace=at.namespace)
        selection = _selection(at, query)
        watch = OpenWatch(self._watches, record.watch, selection, options, user_agent=record.user_agent)
        return ApiAnswer(body=StreamedAnswer(run=watch.run))

    # -- writing -------------------------------------------------------------------------------------------------------

    def create(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Create an object in a collection. Events with protobuf bodies are accepted and not kept."""
        if at.kind == EVENTS and _content_type(request).endswith("protobuf"):
            blank = {"kind": "Event", "apiVersion": "v1", "metadata": {"name": "accepted", "namespace": at.namespace}}
            return ApiAnswer(status=201, body=json.dumps(blank).encode())
        return self._create(at, _body(request), request)

    def update(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Replace an object, or its status alone through the status subresource."""
        return self._replace(at, self._existing(at), _body(request), request)

    def patch(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Change an object by a patch; an apply patch creates it where it does not exist."""
        content_type = _content_type(request)
        before = self._store.latest(at.kind, at.name, at.namespace or "")
        document = _parse(request.body, yaml=content_type == APPLY)
        if before is None and content_type == APPLY and isinstance(document, dict):
            document.setdefault("metadata", {}).setdefault("name", at.name)
            return self._create(at, document, request)
        before = self._existing(at)
        return self._replace(at, before, apply_patch(content_type, json.loads(before.encoded), document), request)

    def delete(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Delete an object. One with finalizers only starts to terminate; a pod terminates, then is gone at once."""
        before = self._existing(at)
        options = _body(request) if request.body else {}
        for field, wanted in (options.get("preconditions") or {}).items():
            if before.object["metadata"].get(field) != wanted:
                why = f"the precondition {field}={wanted} does not hold"
                raise ApiError.conflict(at.kind.resource, at.name, why)
        if _dry_run(request, options):
            return self._object(at.kind, before.encoded, request)
        grace = str(options.get("gracePeriodSeconds", request.query.get("gracePeriodSeconds", "30")))
        last = self._delete(before, grace=int(grace) if grace.isdigit() else 30)
        if at.kind == PODS or last.type != "DELETED":
            return self._object(at.kind, last.encoded, request)
        details = {"name": at.name, "group": at.kind.group, "kind": at.kind.plural}
        status = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"}
        status["details"] = details | {"uid": before.object["metadata"]["uid"]}
        return ApiAnswer(body=json.dumps(status).encode())

    def delete_collection(self, at: ObjectRoute, request: ApiRequest) -> ApiAnswer:
        """Delete all selected objects of a collection, and answer with them."""
        selection = _selection(at, request.query)
        doomed = [each for each in self._store.list(at.kind, at.namespace) if selection.matches(each.object)]
        options = _body(request) if request.body else {}
        if not _dry_run(request, options):
            for change in doomed:
                self._delete(change, grace=0)
        encoded = [change.encoded for change in doomed]
        return ApiAnswer(body=render_list(at.kind, encoded, self._store.resource_version, Form.PLAIN))

    # -- inside --------------------------------------------------------------------------------------------------------

    def _existing(self, at: ObjectRoute) -> Change:
        found = self._store.latest(at.kind, at.name, at.namespace or "")
        if found is None:
            raise ApiError.not_found(at.kind.resource, at.name)
        return found

    def _object(self, kind: Kind, encoded: bytes, request: ApiRequest, *, status: int = 200) -> ApiAnswer:
        form = negotiate(request.headers.get("accept", ""), _FORMS)
        include = request.query.get("includeObject", "Metadata")
        return ApiAnswer(status=status, body=render(kind, encoded, form, include_object=include))

    def _create(self, at: ObjectRoute, obj: Object, request: ApiRequest) -> ApiAnswer:
        metadata = self._checked_metadata(at, obj)
        if metadata.get("resourceVersion"):
            raise ApiError.bad_request("resourceVersion should not be set on objects to be created")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
        name = metadata.get("name") or ""
        if len(name) > 253 or not _NAME.fullmatch(name):
            why = f"{name!r} is not a lower-case RFC 1123 subdomain" if name else "a name or generateName is required"
            raise ApiError.invalid(at.kind.kind, name, "metadata.name", why)
        if self._store.latest(at.kind, name, at.namespace or "") is not None:
            raise ApiError.already_exists(at.kind.resource, name)
        for field in (*_SYSTEM_FIELDS, "resourceVersion"):
            metadata.pop(field, None)
        if _dry_run(request):
            return ApiAnswer(status=201, body=json.dumps(obj).encode())
        return self._object(at.kind, self._store.put(obj).encoded, request, status=201)

    def _replace(self, at: ObjectRoute, before: Change, obj: Object, request: ApiRequest) -> ApiAnswer:
        metadata = self._checked_metadata(at, obj)
        old = before.object
        if metadata.setdefault("name", at.name) != at.name:
            raise ApiError.bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({at.name})"
            )
        for field in ("uid", "resourceVersion"):
            if metadata.get(field) not in (None, "", old["metadata"][field]):
                why = "the object has been modified; please apply your changes to the latest version and try again"
                raise ApiError.conflict(at.kind.resource, at.name, why)
        if at.subresource == "status":
            obj = {**json.loads(before.encoded), "status": obj.get("status", {})}
        else:
            for field in _SYSTEM_FIELDS:
                metadata.pop(field, None)
                if field in old["metadata"]:
                    metadata[field] = old["metadata"][field]
        if _dry_run(request):
            return ApiAnswer(body=json.dumps(obj).encode())
        change = self._store.put(obj)
        was_held = "deletionTimestamp" in old["metadata"] and old["metadata"].get("finalizers")
        if was_held and not change.object["metadata"].get("finalizers"):
            change = self._store.delete(change.kind, change.name, change.namespace)
        return self._object(at.kind, change.encoded, request)

    def _delete(self, before: Change, *, grace: int) -> Change:
        kind, name, namespace = before.kind, before.name, before.namespace
        if before.object["metadata"].get("finalizers"):
            return self._store.terminate(kind, name, namespace, grace_seconds=grace)
        if kind == PODS and grace > 0:
            self._store.terminate(kind, name, namespace, grace_seconds=grace)
        return self._store.delete(kind, name, namespace)

    def _checked_metadata(self, at: ObjectRoute, obj: Object) -> dict[str, Any]:
        if not at.kind.custom:  # clients in Python, Java and JavaScript leave out what the path says already
            for field, said in (("apiVersion", at.kind.api_version), ("kind", at.kind.kind)):
                obj[field] = obj.get(field) or said
        if (obj.get("apiVersion"), obj.get("kind")) != (at.kind.api_version, at.kind.kind):
            raise ApiError.bad_request(
                f"this path takes apiVersion {at.kind.api_version}, kind {at.kind.kind};"
                f" the body says apiVersion {obj.get('apiVersion')!r}, kind {obj.get('kind')!r}"
            )
        metadata = obj.setdefault("metadata", {})
        if not isinstance(metadata, dict):
            raise ApiError.bad_request("metadata must be an object")
        if at.kind.namespaced and metadata.setdefault("namespace", at.namespace) != at.namespace:
            raise ApiError.bad_request(
                f"the namespace of the object ({metadata['namespace']}) does not match the URL ({at.namespace})"
            )
        for field in ("labels", "annotations"):
            values = metadata.get(field) or {}
            if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
                raise ApiError.invalid(at.kind.kind, at.name, f"metadata.{field}", "must map strings to strings")
        return metadata

    def _resource_version(self, query: Mapping[str, str]) -> int | None:
        text = query.get("resourceVersion", "")
        if text in ("", "0"):
            return None
        if not (text.isascii() and text.isdigit()):
            raise ApiError.invalid("ListOptions", "", "resourceVersion", f"{text!r} is not a number")
        if int(text) > self._store.resource_version:
            raise ApiError(
                504,
                "Timeout",
                f"Too large resource version: {text}, current: {self._store.resource_version}",
                causes=[{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                retryAfterSeconds=1,
            )
        return int(text)


def _check_list(query: Mapping[str, str]) -> None:
    """Raise ApiError for options that no list may have, or not together."""
    match, version = query.get("resourceVersionMatch"), query.get("resourceVersion", "")
    why = ""
    if "sendInitialEvents" in query:
        field, why = "sendInitialEvents", "sendInitialEvents is forbidden for list"
    elif match is not None:
        field = "resourceVersionMatch"
        if not version:
            why = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        elif match not in ("Exact", "NotOlderThan"):
            why = f'supported values: "Exact", "NotOlderThan", not {match!r}'
        elif match == "Exact" and version == "0":
            why = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    if why:
        raise ApiError.invalid("ListOptions", "", field, why)


def _selection(at: ObjectRoute, query: Mapping[str, str]) -> ObjectSelection:
    try:
        labels = LabelSelector.parse(query.get("labelSelector", ""))
        fields = FieldSelector.parse(query.get("fieldSelector", ""), selectable=at.kind.fields)
    except SelectorError as error:
        raise ApiError.bad_request(str(error)) from error
    return ObjectSelection(namespace=at.namespace, labels=labels, fields=fields)


def flag(query: Mapping[str, str], name: str) -> bool:
    """Whether a parameter is on: by being there, whatever it says but 0 and false, as an API server reads them."""
    return query.get(name, "0").lower() not in ("0", "false")


def _seconds(query: Mapping[str, str]) -> float:
    text = query.get("timeoutSeconds", "0")
    if not (text.isascii() and text.isdigit()):
        raise ApiError.bad_request(f"timeoutSeconds is {text!r}, not a number of seconds")
    return float(text)


def _dry_run(request: ApiRequest, options: Mapping[str, Any] | None = None) -> bool:
    return "dryRun" in request.query or bool(options and options.get("dryRun"))


def _content_type(request: ApiRequest) -> str:
    return request.headers.get("content-type", "application/json").partition(";")[0].strip()


def _body(request: ApiRequest) -> Object:
    content_type = _content_type(request)
    if content_type == protobuf_body.MEDIA_TYPE:
        try:
            read = protobuf_body.read(request.body)
        except ValueError as problem:
            raise ApiError.bad_request(f"the request body is not {content_type}: {problem}") from problem
        if read is not None:
            return read
    if content_type != "application/json":
        raise ApiError(
            415,
            "UnsupportedMediaType",
            f"request bodies are read as application/json here, and this one is {content_type};"
            " with kubectl use `apply -f`, in Go set rest.Config.ContentType",
        )
    body = _parse(request.body)
    if not isinstance(body, dict):
        raise ApiError.bad_request("the request body is not a JSON object")
    return body


def _parse(body: bytes, *, yaml: bool = False) -> Any:
    if yaml:
        import yaml as pyyaml

        try:
            return pyyaml.safe_load(body)
        except pyyaml.YAMLError as error:
            raise ApiError.bad_request(f"the request body is not YAML: {error}") from error
    try:
        return json.loads(body)
    except ValueError as error:
        raise ApiError.bad_request(f"the request body is not JSON: {error}") from error
