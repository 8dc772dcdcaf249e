"""The inference API: completions, chat, models; JSON and streamed; refusals."""

from __future__ import annotations

import json

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fake_modelserver import Fleet, Gauges, PodSpec
from fake_modelserver.messages import Request
from fake_modelserver.openai import Catalogue, completions

# No verdict may depend on how busy the machine is.
steady = settings(suppress_health_check=[HealthCheck.too_slow])

POD = PodSpec(name="a", models=("base", "other"), adapters=("tuned",), gauges=Gauges(waiting_loras=("queued",)))
CHAT = {"model": "base", "messages": [{"role": "user", "content": "one two three"}]}
PLAIN = {"model": "base", "prompt": "one two three"}


def post(run, path, body, spec=POD):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(spec)
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            return await client.post(f"http://{pod.endpoint}{path}", content=content)

    return run(scenario())


def events(answer):
    assert answer.headers["content-type"].startswith("text/event-stream")
    found = [block.removeprefix("data: ") for block in answer.text.split("\n\n") if block]
    assert found.pop() == "[DONE]"
    return [json.loads(data) for data in found]


@pytest.mark.parametrize(
    ("path", "body", "kind"),
    [("/v1/completions", PLAIN, "text_completion"), ("/v1/chat/completions", CHAT, "chat.completion")],
)
def test_whole_answers(run, path, body, kind):
    answer = post(run, path, body)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    found = answer.json()
    assert set(found) == {"id", "object", "created", "model", "choices", "usage"}
    assert (found["object"], found["model"]) == (kind, "base")
    assert found["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}
    (choice,) = found["choices"]
    assert choice["finish_reason"] == "stop"
    text = choice["text"] if "text" in choice else choice["message"]["content"]
    assert text == "This answer comes from pod a."
    cut = post(run, path, body | {"max_tokens": 2}).json()
    assert cut["choices"][0]["finish_reason"] == "length"
    assert cut["usage"]["completion_tokens"] == 2


@pytest.mark.parametrize(("path", "body"), [("/v1/completions", PLAIN), ("/v1/chat/completions", CHAT)])
def test_streamed_answers_have_usage_only_when_asked(run, path, body):
    plain = events(post(run, path, body | {"stream": True}))
    assert not any("usage" in found for found in plain)
    assert plain[-1]["choices"][0]["finish_reason"] == "stop"
    pieces = [found["choices"][0] for found in plain]
    text = "".join(piece["text"] if "text" in piece else piece["delta"].get("content", "") for piece in pieces)
    assert text == "This answer comes from pod a."

    asked = events(post(run, path, body | {"stream": True, "stream_options": {"include_usage": True}}))
    *rest, last = asked
    assert [found["usage"] for found in rest] == [None] * len(rest)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 3, "completion_tokens": 6, "total_tokens": 9}


def test_each_event_is_a_chunk_of_its_own(run, connect):
    async def scenario():
        async with Fleet() as fleet:
            client = await connect(await fleet.add(POD))
            body = json.dumps(PLAIN | {"stream": True}).encode()
            head = b"POST /v1/completions HTTP/1.1\r\ncontent-length: %d\r\n\r\n"
            await client.send(head % len(body) + body)
            await client.head()
            chunks = []
            while chunk := await client.chunk():
                chunks.append(chunk)
            assert len(chunks) == 7
            assert all(chunk.startswith(b"data: ") and chunk.endswith(b"\n\n") for chunk in chunks)
            client.close()

    run(scenario())


def test_models_and_adapters(run):
    async def scenario():
        async with Fleet() as fleet, httpx.AsyncClient() as client:
            pod = await fleet.add(POD)
            listed = (await client.get(f"http://{pod.endpoint}/v1/models")).json()
            pod.adapters = frozenset({"late"})
            late = await client.post(f"http://{pod.endpoint}/v1/completions", json=PLAIN | {"model": "late"})
            gone = await client.post(f"http://{pod.endpoint}/v1/completions", json=PLAIN | {"model": "tuned"})
            return listed, late.status_code, gone.status_code

    listed, late, gone = run(scenario())
    assert listed["object"] == "list"
    assert [(entry["id"], entry["parent"]) for entry in listed["data"]] == [
        ("base", None),
        ("other", None),
        ("queued", "base"),
        ("tuned", "base"),
    ]
    assert (late, gone) == (200, 404)


@pytest.mark.parametrize(("model", "status"), [("tuned", 200), ("queued", 200), ("nobody", 404)])
def test_which_models_are_served(run, model, status):
    answer = post(run, "/v1/completions", PLAIN | {"model": model})
    assert answer.status_code == status
    if status == 404:
        assert answer.json()["error"]["message"] == "The model `nobody` does not exist."
    anything = PodSpec(name="a", any_model=True)
    assert post(run, "/v1/completions", PLAIN | {"model": model}, anything).json()["model"] == model


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/completions", b"", None),
        ("/v1/completions", b"{", None),
        ("/v1/completions", b"[1]", None),
        ("/v1/completions", b"[" * 100_000, None),
        ("/v1/completions", b"\xff", None),
        ("/v1/completions", {"prompt": "x"}, "model"),
        ("/v1/completions", {"model": None, "prompt": "x"}, "model"),
        ("/v1/completions", {"model": 1, "prompt": "x"}, "model"),
        ("/v1/completions", {"model": "base"}, "prompt"),
        ("/v1/completions", {"model": "base", "prompt": []}, "prompt"),
        ("/v1/completions", PLAIN | {"max_tokens": 0}, "max_tokens"),
        ("/v1/completions", PLAIN | {"stream": "yes"}, "stream"),
        ("/v1/completions", PLAIN | {"stream_options": {}}, "stream_options"),
        ("/v1/chat/completions", {"model": "base"}, "messages"),
        ("/v1/chat/completions", {"model": "base", "messages": [{"content": "x"}]}, "messages"),
        ("/v1/chat/completions", {"model": "base", "messages": [{"role": "user", "content": 1}]}, "messages"),
    ],
)
def test_refusals_are_in_the_apis_form(run, path, body, param):
    answer = post(run, path, body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (param, 400)
    assert error["message"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
fields = st.sampled_from(["model", "prompt", "messages", "max_tokens", "stream", "stream_options", "role", "content"])


@steady
@given(st.dictionaries(fields, json_values | st.just("base") | st.just([{"role": "user", "content": "x"}])))
def test_any_json_is_served_or_refused(body):
    request = Request(method="POST", target="/", headers=(), body=json.dumps(body).encode())
    catalogue = Catalogue(pod="a", models=("base",), adapters=(), any_model=True)
    for chat in (False, True):
        assert completions(request, catalogue, chat=chat).status in (200, 400)


@pytest.mark.parametrize(("prompt", "tokens"), [(["a b", "c"], 3), ([1, 2, 3], 3), ([[1, 2], [3]], 3)])
def test_prompt_forms(run, prompt, tokens):
    assert post(run, "/v1/completions", PLAIN | {"prompt": prompt}).json()["usage"]["prompt_tokens"] == tokens


def test_chat_content_forms(run):
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "a b"}, {"type": "image_url", "image_url": {}}]},
        {"role": "assistant", "content": None},
    ]
    assert post(run, "/v1/chat/completions", CHAT | {"messages": messages}).json()["usage"]["prompt_tokens"] == 2
