"""Scenario files of role data-plane: what they may say, and how mistakes are shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.planning.epp_scripts import played
from conformance.requirements.catalogue import Catalogue
from conformance.scenario.epp_script import EppScript
from conformance.scenario.loader import load
from conformance.strict_yaml import FileError
from fake_epp import Answer, Delay, Immediate, Reset

CATALOGUE = Catalogue.load()
HEAD = "section: mine\nrole: data-plane\nscenarios:\n"
ONE = "  - {id: mine.one, title: t, requirements: [DP-DEST-01], steps: ["
ENDPOINTS = {"a": ("10.0.0.1:8000",), "b": ("10.0.0.2:8000",), "nobody": ("10.0.0.9:8000",)}


def problems(tmp_path: Path, text: str) -> str:
    (tmp_path / "mine.yaml").write_text(text)
    with pytest.raises(FileError) as raised:
        load(CATALOGUE, [tmp_path / "mine.yaml"])
    return raised.value.message


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("{exchange: {}}", ":4:67: steps[0].exchange: the step `exchange` has no place in a scenario of role"),
        ("{request: {epp: {pick: ['{d}']}}}", "{d} is neither a pod of this scenario nor a variable"),
        ("{pods: {d: refuses}}", "this scenario has no pod d"),
        (
            "{pods: {a: sleeps}}",
            "'sleeps' is not one of the values allowed here",
        ),
        ("{epps: {third: down}}", "epps"),
        (
            "{request: {epp: {pick: ['{a}'], immediate: {code: 503}}}}",
            "an EPP does one thing: give `pick` or `immediate`",
        ),
        (
            "{request: {epp: {pick: ['{a}'], picks: [['{b}']]}}}",
            "an EPP does one thing: give `pick` or `picks`",
        ),
        (
            "{request: {epp: {pick: ['{a}'], fails: reset}}}",
            "an EPP does one thing: give `pick` or `fails`",
        ),
        ("{request: {epp: {pick: ['{a}'], failsAt: request-end}}}", "`failsAt` has no effect without `fails`"),
        ("{request: {epp: {picks: [['{d}']]}}}", "{d} is neither a pod of this scenario nor a variable"),
        ("{request: {abort: destination}}", "a client does not see when an endpoint is chosen"),
        ("{request: {connection: shared, http: 2}}", "`connection: shared` is for HTTP/1.1 requests"),
        ("{request: {written: http-1.0, http: 2}}", "`written` is for HTTP/1 requests with the length of their body"),
        ("{request: {}, pods: {a: serves}}", "a step has exactly one action, this one has request, pods"),
        ("{pods: {a: serves}, expect: {status: 200}}", "nothing comes back from a pods step"),
        (
            "{request: {reply: {early: true}}}",
            ":4:85: steps[0].request.reply.early: 'early' has no effect in `request.reply` of a step `request`",
        ),
        ("{request: {reply: {source: never}}}", ":4:85: steps[0].request.reply.source: 'source' has no effect"),
        (
            "{request: {reply: {kind: sse, lockStep: true}}}",
            ":4:96: steps[0].request.reply.lockStep: 'lockStep' has no",
        ),
        ("{request: {reply: {coalesced: true}}}", ":4:85: steps[0].request.reply.coalesced: 'coalesced' has no effect"),
        ("{request: {coalesced: true}}", ":4:77: steps[0].request.coalesced: 'coalesced' has no effect"),
        ("{request: {}, expect: {within: ['{a}']}}", "expect.within: 'within' has no effect in `expect` of a step"),
        ("{request: {epp: {piks: ['{a}']}}}", "unknown key 'piks' (did you mean 'picks'?)"),
    ],
)
def test_a_mistake_is_shown_at_its_place(tmp_path: Path, steps: str, said: str) -> None:
    message = problems(tmp_path, f"{HEAD}{ONE}{steps}]}}\n")
    assert said in message


def test_a_key_without_effect_is_shown_where_a_variable_has_it(tmp_path: Path) -> None:
    one = ONE.replace("steps", "matrix: {reply: [{status: 500}, {early: true}]}, steps")
    message = problems(tmp_path, f"{HEAD}{one}{{request: {{reply: '{{reply}}'}}}}]}}\n")
    assert "mine.yaml:4:" in message
    assert "'early' has no effect in `request.reply` of a step `request`" in message
    assert "mine.yaml:4:" in message


def test_roles_are_not_mixed(tmp_path: Path) -> None:
    text = HEAD + ONE.replace("DP-DEST-01", "EPP-DEST-01") + "{request: {}}]}\n"
    message = problems(tmp_path, text)
    assert "EPP-DEST-01 is a requirement of role epp, and this file's scenarios test role data-plane" in message
    assert "say `role: epp` at the head of the file" in message
    message = problems(tmp_path, text.replace("role: data-plane\n", ""))
    assert "the step `request` has no place in a scenario of role epp (there are exchange, pool" in message


def test_every_requirement_of_the_role_has_a_scenario_in_each_of_its_versions() -> None:
    named = {name for one in load(CATALOGUE) if one.role == "data-plane" for name in one.scenario.requirements}
    assert {one.id for one in CATALOGUE if one.role == "data-plane" and one.testable} == named


# -- what the EPP is told to do ----------------------------------------------------------------------------------------


def test_a_script_is_played_as_it_is_written() -> None:
    script = played(EppScript(pick=("{a}", "bogus", " {b}")), ENDPOINTS, "envoy.lb")
    assert script.pick is not None
    assert script.pick.text == "10.0.0.1:8000,bogus, 10.0.0.2:8000"
    assert (script.pick.header, script.pick.metadata, script.acts) == (True, True, {})
    script = played(EppScript(pick=("{a}",), said_in="metadata", fallback="{b}", delay=0.5), ENDPOINTS, "other")
    assert script.pick is not None
    assert (script.pick.header, script.pick.metadata, script.pick.namespace) == (False, True, "other")
    delay, answer = script.acts["request_headers"]
    assert delay == Delay(seconds=0.5)
    assert isinstance(answer, Answer)
    assert answer.metadata == {"other": {"x-gateway-destination-endpoint-fallback": "10.0.0.2:8000"}}
    assert played(EppScript(), ENDPOINTS, "envoy.lb").pick is None


def test_an_epp_may_fail_in_each_way() -> None:
    def acts(**said) -> tuple[object, ...]:
        script = played(EppScript(**said), ENDPOINTS, "envoy.lb")
        assert script.quiet
        return script.acts["request_headers"]

    assert acts(fails="silent") == ()
    assert acts(fails="reset") == (Reset(),)
    (end,) = acts(fails="error")
    assert end.status == 14
    (immediate,) = acts(immediate={"code": 429, "body": "x", "headers": [["Retry-After", "1"]]})
    assert isinstance(immediate, Immediate)
    assert (immediate.code, immediate.body, immediate.headers[0].name) == (429, b"x", "retry-after")


@given(st.lists(st.sampled_from(["{a}", "{b}", "{nobody}", "x", ""]), max_size=4))
def test_every_item_of_a_list_is_said(items: list[str]) -> None:
    script = played(EppScript(pick=tuple(items)), ENDPOINTS, "envoy.lb")
    said = script.pick.text.split(",") if script.pick is not None else []
    assert len(said) == len(items)
    assert all("{" not in one for one in said)
