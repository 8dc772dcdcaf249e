"""Watches over HTTP: every way to start one, bookmarks, the end of history, trouble, and the knowledge of delivery."""

from __future__ import annotations

import asyncio
import json

import httpx
import pytest
import uvloop
from wire import until

from fake_kubernetes import INFERENCE_POOLS, PODS, Emulator, Faults, builders

PODS_PATH = "/api/v1/namespaces/default/pods"
WATCH_LIST = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
DEADLINE = 10.0


def _brief(event):
    return event["type"], event["object"]["metadata"].get("name")


def _put(emulator, name, **options):
    return emulator.store.put(builders.pod(name, "127.0.0.1", **options))


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
async def test_a_watch_from_a_version_gets_what_came_after_it(serving, watching, loop):
    async with serving() as (emulator, client):
        _put(emulator, "a")
        version = emulator.store.resource_version
        _put(emulator, "b")
        async with watching(client, PODS_PATH, resourceVersion=version) as watch:
            assert _brief(await watch.next()) == ("ADDED", "b")
            _put(emulator, "b", ready=False)
            event = await watch.next()
            assert _brief(event) == ("MODIFIED", "b")
            assert (event["object"]["apiVersion"], event["object"]["kind"]) == ("v1", "Pod")
            gone = emulator.store.delete(PODS, "a")
            event = await watch.next()
            assert _brief(event) == ("DELETED", "a")
            assert event["object"]["metadata"]["resourceVersion"] == str(gone.resource_version)


@pytest.mark.parametrize(
    ("said", "watches"), [("", True), ("yes", True), ("True", True), ("0", False), ("False", False)]
)
async def test_watch_is_on_whatever_it_says_but_no(serving, said, watches):
    async with serving() as (_, client):
        answer = await client.get(PODS_PATH, params={"watch": said, "timeoutSeconds": "1"})
        assert ("transfer-encoding" in answer.headers) is watches
        assert (answer.content == b"") is watches


@pytest.mark.parametrize("query", [{}, {"resourceVersion": ""}, {"resourceVersion": "0"}])
async def test_a_watch_from_nowhere_begins_with_what_is_there(serving, watching, query):
    async with serving() as (emulator, client):
        _put(emulator, "b")
        _put(emulator, "a")
        async with watching(client, PODS_PATH, **query) as watch:
            assert [_brief(await watch.next()) for _ in range(2)] == [("ADDED", "a"), ("ADDED", "b")]
            _put(emulator, "c")
            assert _brief(await watch.next()) == ("ADDED", "c")


@pytest.mark.parametrize("pods", [0, 2])
async def test_watch_list_marks_the_end_of_the_list(serving, watching, pods):
    async with serving() as (emulator, client):
        for number in range(pods):
            _put(emulator, f"p{number}")
        async with watching(client, PODS_PATH, **WATCH_LIST) as watch:
            for number in range(pods):
                assert _brief(await watch.next()) == ("ADDED", f"p{number}")
            mark = await watch.next()
            assert mark["type"] == "BOOKMARK"
            assert mark["object"]["kind"] == "Pod"
            assert mark["object"]["metadata"]["resourceVersion"] == str(emulator.store.resource_version)
            assert mark["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
            _put(emulator, "later")
            assert _brief(await watch.next()) == ("ADDED", "later")
        async with watching(client, PODS_PATH, **{**WATCH_LIST, "sendInitialEvents": "false"}) as watch:
            _put(emulator, "last")
            assert _brief(await watch.next()) == ("ADDED", "last")


async def test_watch_list_can_be_refused(serving, watching):
    async with serving() as (emulator, client):
        emulator.faults = Faults(refuse_watch_list=True)
        answer = await client.get(PODS_PATH, params={"watch": "true", **WATCH_LIST})
        assert answer.status_code == 422
        assert answer.json()["reason"] == "Invalid"
        _put(emulator, "a")
        async with watching(client, PODS_PATH) as watch:  # a plain watch goes on working
            assert _brief(await watch.next()) == ("ADDED", "a")


async def test_entering_and_leaving_a_selection(serving, watching):
    async with serving() as (emulator, client):
        _put(emulator, "a", labels={"app": "x"})
        async with watching(client, "/api/v1/pods", labelSelector="app=x") as watch:
            assert _brief(await watch.next()) == ("ADDED", "a")
            _put(emulator, "b", labels={"app": "y"})  # never seen
            left = _put(emulator, "a", labels={"app": "y"})
            event = await watch.next()
            assert _brief(event) == ("DELETED", "a")
            assert event["object"]["metadata"]["labels"] == {"app": "x"}  # as the client knew it
            assert event["object"]["metadata"]["resourceVersion"] == str(left.resource_version)
            _put(emulator, "b", labels={"app": "x"}, namespace="other")
            assert _brief(await watch.next()) == ("ADDED", "b")
            emulator.store.delete(PODS, "a")  # not selected any more
            emulator.store.delete(PODS, "b", "other")
            assert _brief(await watch.next()) == ("DELETED", "b")


async def test_a_field_selector_follows_one_object(serving, watching):
    path = "/apis/inference.networking.k8s.io/v1/namespaces/default/inferencepools"
    async with (
        serving() as (emulator, client),
        watching(client, path, fieldSelector="metadata.name=pool", **WATCH_LIST) as watch,
    ):
        assert (await watch.next())["type"] == "BOOKMARK"
        emulator.store.put(builders.pool("other", {}, [1]))
        emulator.store.put(builders.pool("pool", {}, [1]))
        assert _brief(await watch.next()) == ("ADDED", "pool")
        emulator.store.delete(INFERENCE_POOLS, "pool")
        assert _brief(await watch.next()) == ("DELETED", "pool")


async def test_bookmarks_come_by_themselves_and_only_when_allowed(serving, watching):
    async with serving(bookmark_interval=0.02) as (emulator, client):
        async with watching(client, PODS_PATH, allowWatchBookmarks="true") as watch:
            mark = await watch.next()
            assert mark["type"] == "BOOKMARK"
            assert "annotations" not in mark["object"]["metadata"]
            emulator.store.put(builders.pool("p", {}, [1]))  # another kind moves the version too
            while mark["object"]["metadata"]["resourceVersion"] != str(emulator.store.resource_version):
                mark = await watch.next()
        async with watching(client, PODS_PATH, timeoutSeconds=1) as watch:
            assert await watch.rest() == []
        assert emulator.requests[-1].watch.ended == "timeout"


async def test_tables_are_watched_row_by_row(serving, watching):
    async with serving() as (emulator, client):
        client.headers["accept"] = "application/json;as=Table;v=v1;g=meta.k8s.io"
        _put(emulator, "a")
        async with watching(client, PODS_PATH, **WATCH_LIST) as watch:
            event = await watch.next()
            assert event["object"]["kind"] == "Table"
            assert event["object"]["rows"][0]["cells"][0] == "a"
            assert (await watch.next())["object"]["rows"] == []


async def test_compaction_ends_open_watches_and_expires_old_versions(serving, watching):
    async with serving() as (emulator, client):
        version = emulator.store.resource_version
        async with watching(client, PODS_PATH, resourceVersion=version) as watch:
            emulator.compact()
            (event,) = await watch.rest()
            assert event["type"] == "ERROR"
            assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert emulator.requests[-1].watch.ended == "expired"
        async with watching(client, PODS_PATH, resourceVersion=version) as watch:
            assert [event["type"] for event in await watch.rest()] == ["ERROR"]
        listed = (await client.get(PODS_PATH)).json()["metadata"]["resourceVersion"]
        async with watching(client, PODS_PATH, resourceVersion=listed) as watch:
            _put(emulator, "a")
            assert _brief(await watch.next()) == ("ADDED", "a")


async def test_dropped_watches_are_cut_and_resume_without_loss(serving, watching):
    async with serving() as (emulator, client):
        change = _put(emulator, "a")
        async with watching(client, PODS_PATH) as watch:
            await watch.next()
            assert emulator.drop_watches() == 1
            with pytest.raises(httpx.RemoteProtocolError):
                await watch.rest()
        assert emulator.requests[-1].watch.ended == "dropped"
        _put(emulator, "b")
        async with watching(client, PODS_PATH, resourceVersion=change.resource_version) as watch:
            assert _brief(await watch.next()) == ("ADDED", "b")


async def test_a_bookmark_that_is_asked_for_comes_before_the_next_change_and_only_where_allowed(serving, watching):
    async with serving() as (emulator, client):
        version = emulator.store.resource_version
        allowed = watching(client, PODS_PATH, resourceVersion=version, allowWatchBookmarks="true")
        other = watching(client, PODS_PATH, resourceVersion=version)
        async with allowed as marked, other as plain:
            emulator.bookmark()
            _put(emulator, "a")
            mark = await marked.next()
            assert (mark["type"], mark["object"]["metadata"]["resourceVersion"]) == ("BOOKMARK", str(version))
            assert _brief(await marked.next()) == ("ADDED", "a")
            assert _brief(await plain.next()) == ("ADDED", "a")


async def test_watches_that_are_ended_are_not_cut_and_get_no_further_change(serving, watching):
    async with serving() as (emulator, client):
        version = emulator.store.resource_version
        async with watching(client, PODS_PATH, resourceVersion=version) as watch:
            assert emulator.end_watches() == 1
            _put(emulator, "a")
            assert await watch.rest() == []
        assert emulator.requests[-1].watch.ended == "timeout"
        async with watching(client, PODS_PATH, resourceVersion=version) as watch:
            assert _brief(await watch.next()) == ("ADDED", "a")


async def test_versions_that_are_lengthened_go_on_in_open_watches(serving, watching):
    async with serving() as (emulator, client):
        before = emulator.store.resource_version
        async with watching(client, PODS_PATH, resourceVersion=before) as watch:
            emulator.store.lengthen_versions()
            change = _put(emulator, "a")
            assert len(str(change.resource_version)) == len(str(before)) + 1
            assert _brief(await watch.next()) == ("ADDED", "a")
            assert await emulator.delivered(change.resource_version, DEADLINE)
        for _ in range(30):
            emulator.store.lengthen_versions()
        assert _put(emulator, "b").resource_version < 2**53


@pytest.mark.parametrize("loop", [asyncio.run, uvloop.run])
async def test_a_restart_refuses_cuts_and_goes_on_at_the_same_port(serving, watching, loop):
    async with serving() as (emulator, client):
        port = emulator.port
        change = _put(emulator, "a")
        async with watching(client, PODS_PATH) as watch:
            await watch.next()
            await emulator.go_down()
            with pytest.raises(httpx.TransportError):
                await watch.rest()
        with pytest.raises(httpx.ConnectError):
            await client.get("/healthz")
        _put(emulator, "b")  # the store lives on
        await emulator.come_up()
        assert emulator.port == port
        async with watching(client, PODS_PATH, resourceVersion=change.resource_version) as watch:
            assert _brief(await watch.next()) == ("ADDED", "b")
        await emulator.restart()
        assert (await client.get("/readyz")).text == "ok"


async def test_a_pause_holds_events_back_and_lists_go_on(serving, watching):
    async with serving() as (emulator, client), watching(client, PODS_PATH, resourceVersion=2) as watch:
        assert await emulator.watched([PODS], DEADLINE)
        emulator.faults = Faults(paused=True)
        change = _put(emulator, "a")
        assert not await emulator.delivered(change.resource_version, 0.02)
        assert len((await client.get(PODS_PATH)).json()["items"]) == 1
        assert not await emulator.delivered(change.resource_version, 0.02)  # the open watch counts, not the list
        emulator.faults = Faults()
        assert await emulator.delivered(change.resource_version, DEADLINE)
        assert _brief(await watch.next()) == ("ADDED", "a")


async def test_a_slow_server_still_delivers(serving, watching):
    async with serving() as (emulator, client):
        emulator.faults = Faults(delay=0.02)
        async with watching(client, PODS_PATH) as watch:
            change = _put(emulator, "a")
            assert _brief(await watch.next()) == ("ADDED", "a")
            assert await emulator.delivered(change.resource_version, DEADLINE)


async def test_delivered_waits_for_every_watch_of_the_kind(serving, watching):
    async with serving() as (emulator, client):
        change = _put(emulator, "a")
        version = change.resource_version
        assert not await emulator.delivered(version, 0.02)  # not asked for
        assert not await emulator.watched([PODS], 0.02)
        await client.get(PODS_PATH)
        assert await emulator.delivered(version, DEADLINE)  # a list that new was answered
        async with watching(client, PODS_PATH), watching(client, "/api/v1/pods", labelSelector="app=none"):
            assert await emulator.watched([PODS], DEADLINE)
            change = _put(emulator, "b")
            assert await emulator.delivered(
                change.resource_version, DEADLINE
            )  # also to the one that sees nothing of it
            assert [watch.position for watch in emulator.watches] == [change.resource_version] * 2
            assert not await emulator.delivered(change.resource_version, 0.02, [PODS, INFERENCE_POOLS])
            pool = emulator.store.put(builders.pool("p", {}, [1]))
            assert not await emulator.delivered(pool.resource_version, 0.02)  # pools are not followed
            assert await emulator.delivered(pool.resource_version, DEADLINE, [PODS])
            emulator.compact()
            later = emulator.store.resource_version
        assert not await emulator.delivered(later, 0.02)
        assert emulator.watches == ()


async def test_the_event_of_a_pod_comes_in_pieces_that_end_within_a_line_and_within_a_character(serving):
    async with serving() as (emulator, client):
        _put(emulator, "a")
        pieces = []
        async with client.stream("GET", PODS_PATH, params={"watch": "true"}) as answer:
            async for piece in answer.aiter_raw():
                pieces.append(piece)
                if piece.endswith(b"\n"):
                    break
    event = json.loads(b"".join(pieces))
    assert _brief(event) == ("ADDED", "a")
    with pytest.raises(UnicodeDecodeError):
        [piece.decode() for piece in pieces]


async def test_events_are_not_delivered_to_a_client_that_does_not_read(serving):
    async with serving() as (emulator, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", emulator.port, limit=1024)
        writer.write(f"GET {PODS_PATH}?watch=true HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        await reader.readline()
        assert await emulator.watched([PODS], DEADLINE)
        blob = "x" * 1_000_000
        for number in range(32):  # more than the kernel buffers
            change = _put(emulator, "a", annotations={"blob": blob, "n": str(number)})
        assert not await emulator.delivered(change.resource_version, 0.1)
        drain = asyncio.create_task(reader.read(-1))
        assert await emulator.delivered(change.resource_version, DEADLINE)
        writer.close()
        drain.cancel()
        await asyncio.gather(drain, return_exceptions=True)


async def test_a_client_that_leaves_is_noticed_at_once(serving, watching):
    async with serving() as (emulator, client):
        async with watching(client, PODS_PATH):
            assert await emulator.watched([PODS], DEADLINE)
        async with asyncio.timeout(DEADLINE):
            await until(lambda: not emulator.watches)
        assert emulator.requests[-1].watch.ended == "disconnected"


async def test_stop_leaves_nothing_behind(watching):
    emulator = Emulator()
    await emulator.stop()  # harmless before the start
    await emulator.start()
    async with httpx.AsyncClient(base_url=emulator.url, trust_env=False) as client, watching(client, PODS_PATH):
        assert await emulator.watched([PODS], DEADLINE)
        await emulator.stop()
    await emulator.stop()
    assert emulator.watches == ()
    assert asyncio.all_tasks() == {asyncio.current_task()}
