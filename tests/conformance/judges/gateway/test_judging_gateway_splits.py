"""Judges of a route that splits requests over two pools."""

from __future__ import annotations

import pytest
from scripted import BODY, Script, echo, headers_answer, immediate

from conformance.evidence.episode import BackendFact
from conformance.verdict import Verdict

A, X = "10.0.0.1:8000", "10.0.0.9:8000"
PICKS = {"first": A, "second": X}
POOLS = tuple(BackendFact(epp=epp, endpoints=(endpoint,)) for epp, endpoint in PICKS.items())
SPLIT = ((b"x-split", b"1"),)


@pytest.fixture
def script() -> Script:
    return Script(pool={"a": A, "x": X})


@pytest.fixture
def judged(gateway):
    def judged(script: Script, version: str = "1.0.0"):
        return gateway(script, version, backends=POOLS, split_header="X-Split")

    return judged


def served(script: Script, epp: str, to: str, headers=SPLIT) -> None:
    """The EPP of one pool lets a request go, and a model server takes it."""
    one = script.exchange(epp=epp, headers=headers).request(BODY)
    one.answers(headers_answer(PICKS[epp]), *echo(BODY)).upstream(to, 200, body=BODY)
    one.response_headers(served=to).answers(headers_answer(side="response")).body(b"{}", side="response")
    one.answers(*echo(b"{}", side="response")).client(200, b"{}").reset()


def refused(script: Script, epp: str = "second") -> None:
    """The EPP of one pool refuses a request."""
    script.exchange(epp=epp, headers=SPLIT).request(BODY).answers(immediate(503)).client(503).reset()


def failed(script: Script) -> None:
    """The gateway itself refuses a request."""
    script.exchange(headers=SPLIT, stream=False).client(500)


@pytest.mark.parametrize("version", ["0.2.0", "0.4.0", "1.0.0", "next"])
def test_each_pool_has_its_epp(script, judged, version):
    for epp in ("first", "second") * 12:
        served(script, epp, PICKS[epp])
    found = judged(script, version)
    assert found["DP-SPLIT-01"] is Verdict.PASS
    assert found.blamed == set()


@pytest.mark.parametrize("version", ["0.2.0", "0.4.0", "1.0.0", "next"])
@pytest.mark.parametrize("epp", ["first", "second"])
def test_the_epp_of_the_other_pool_was_asked(script, judged, epp, version):
    served(script, epp, X if epp == "first" else A)
    assert judged(script, version).failed == {"DP-SPLIT-01"}


def test_requests_of_other_routes_are_no_split(script, judged):
    served(script, "first", A, headers=())
    found = judged(script)
    assert found.blamed == set()
    assert found["DP-SPLIT-01"] is None


@pytest.mark.parametrize(("times", "known"), [(8, True), (24, False)])
def test_a_route_that_uses_one_pool_says_nothing(script, judged, times, known):
    """A few in a row are chance."""
    for _ in range(times):
        served(script, "first", A)
    assert (judged(script)["DP-SPLIT-01"] is Verdict.PASS) is known


class TestAPoolWithoutEndpoints:
    @pytest.mark.parametrize("lost", [0, 1, 20, 34, 35, 40])
    def test_its_share_may_fail(self, script, judged, lost):
        """35 of 40 and more come by chance less often than once in a million runs."""
        script.epps(second=False)
        for number in range(40):
            if number < lost:
                failed(script)
            else:
                served(script, "first", A)
        found = judged(script)
        assert found.failed == set()
        assert found["DP-SPLIT-02"] is (Verdict.WARN if lost >= 35 else Verdict.PASS)

    def test_an_epp_that_refuses_tells_of_it(self, script, judged):
        for _ in range(20):
            served(script, "first", A)
            refused(script)
        found = judged(script)
        assert found.blamed == set()
        assert found["DP-SPLIT-02"] is Verdict.PASS

    def test_one_refusal_for_all(self, script, judged):
        refused(script)
        for _ in range(39):
            failed(script)
        assert judged(script)["DP-SPLIT-02"] is Verdict.WARN

    def test_pods_that_take_no_connections_tell_of_it(self, script, judged):
        script.conduct(x="refuses")
        for _ in range(40):
            failed(script)
        assert judged(script)["DP-SPLIT-02"] is Verdict.WARN

    def test_where_both_are_empty_nothing_is_due(self, script, judged):
        for epp in ("first", "second") * 20:
            refused(script, epp)
        found = judged(script)
        assert found.blamed == set()
        assert found["DP-SPLIT-02"] is None
