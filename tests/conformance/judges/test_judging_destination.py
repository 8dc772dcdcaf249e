"""Judges of the destination: where it is, its form, and what it names."""

from __future__ import annotations

import pytest
from scripted import (
    BODY,
    NAMESPACE,
    Script,
    body_answer,
    echo,
    headers_answer,
    immediate,
    option,
    pod,
    streamed,
    trailers_answer,
    with_metadata,
)

from conformance.verdict import Verdict
from ext_proc.messages import BodyMutation, HeaderMutation, HeaderValueOption
from ext_proc.protocol import DESTINATION, SCORES

A, B, C = "10.0.0.1:8000", "10.0.0.2:8000", "10.0.0.3:8000"
POOL = {"a": A, "b": B, "c": C}


def answered(*answers, pool=POOL, **exchange):
    script = Script(pool=pool)
    script.exchange(**exchange).request(BODY).answers(*answers).drained()
    return script


def given(header=A, metadata=A, **more):
    return answered(headers_answer(header=header, metadata=metadata, **more), *echo(BODY))


class TestWhatIsRight:
    @pytest.mark.parametrize("version", ["0.2.0", "0.3.0", "0.4.0", "1.0.0", "next"])
    def test_a_plain_answer_has_no_fault_in_any_version(self, ask, version):
        verdicts = ask(given(), version)
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-01"] is verdicts["EPP-DEST-02"] is verdicts["EPP-DEST-05"] is Verdict.PASS
        assert verdicts["EPP-DEST-06"] is (None if version == "0.2.0" else Verdict.PASS)

    def test_repeated_equal_metadata_extra_namespaces_and_explicit_overwrite(self, ask):
        overwrite = option(DESTINATION, A, append_action=HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD)
        metadata = {NAMESPACE: {DESTINATION: A, "other": 1}, "vendor": {"x": "y"}}
        script = Script(pool=POOL)
        one = script.exchange().request(BODY)
        one.answers(headers_answer(None, options=[overwrite], metadata=metadata))
        one.answers(with_metadata(echo(BODY)[0], A))
        one.response_headers().answers(with_metadata(headers_answer(side="response"), A)).drained()
        assert ask(script).blamed == set()

    def test_a_list_of_the_whole_pool(self, ask):
        verdicts = ask(given(f"{A},{B},{C}", f"{A},{B},{C}"))
        assert verdicts.blamed == set()
        assert "3 endpoints" in verdicts.finding("EPP-DEST-09").actual

    def test_buffered_mode_takes_the_destination_from_the_body_answer(self, ask):
        steered = body_answer(header_mutation=HeaderMutation(set_headers=[option(DESTINATION, A)]))
        script = Script(pool=POOL)
        one = script.exchange(mode="BUFFERED").request_headers().answers(headers_answer())
        one.body(BODY).answers(with_metadata(steered, A)).drained()
        assert ask(script).blamed == set()

    def test_metadata_may_come_earlier_than_the_header_in_buffered_mode(self, ask):
        steered = body_answer(header_mutation=HeaderMutation(set_headers=[option(DESTINATION, A)]))
        script = Script(pool=POOL)
        one = script.exchange(mode="BUFFERED").request_headers().answers(headers_answer(header=None, metadata=A))
        one.body(BODY).answers(steered).drained()
        assert ask(script).blamed == set()

    def test_mixed_case_key_is_the_same_header(self, ask):
        upper = option("X-Gateway-Destination-Endpoint", A)
        assert ask(answered(headers_answer(None, options=[upper], metadata=A), *echo(BODY))).blamed == set()

    def test_a_client_value_that_is_overwritten_only_warns_about_append_semantics(self, ask):
        sent = ((b"x-gateway-destination-endpoint", b"6.6.6.6:1"),)
        verdicts = ask(answered(headers_answer(A), *echo(BODY), headers=sent))
        assert verdicts.blamed == {"EPP-TRN-07"}
        removed = ask(answered(headers_answer(A, remove=[DESTINATION]), *echo(BODY), headers=sent))
        assert removed.blamed == set()

    def test_an_ipv6_endpoint_in_another_spelling_is_the_pools(self, ask):
        script = Script(pool={"a": "[fd00::1]:8000"})
        answer = headers_answer("[FD00:0:0::1]:8000")
        script.exchange().request(BODY).answers(answer, *echo(BODY)).drained()
        assert ask(script).failed == set()


class TestMissingOrMisplaced:
    def test_no_header(self, ask):
        assert ask(given(header=None)).blamed == {"EPP-DEST-01"}

    def test_empty_header(self, ask):
        assert ask(given(header="")).blamed == {"EPP-DEST-01"}

    def test_no_metadata(self, ask):
        assert ask(given(metadata=None)).blamed == {"EPP-DEST-02"}

    def test_metadata_as_a_list(self, ask):
        assert ask(given(metadata={NAMESPACE: {DESTINATION: [A]}})).blamed == {"EPP-DEST-02"}

    def test_flat_metadata(self, ask):
        assert ask(given(metadata={DESTINATION: A})).blamed == {"EPP-DEST-03"}

    def test_another_namespace(self, ask):
        script = given(metadata={"envoy.lb.other": {DESTINATION: A}})
        assert ask(script).blamed == {"EPP-DEST-03"}
        assert ask(script, destination_namespace="envoy.lb.other").blamed == set()

    def test_namespace_that_is_no_struct(self, ask):
        assert ask(given(metadata={NAMESPACE: A})).blamed == {"ENV-14", "EPP-DEST-02"}

    def test_namespace_without_a_kind(self, ask):
        """As protobuf.js writes it where the field is called `struct_value`."""
        answer = headers_answer(header=A, metadata=None)
        answer.dynamic_metadata.fields[NAMESPACE].Clear()
        assert ask(answered(answer, *echo(BODY))).blamed == {"ENV-14", "EPP-DEST-02"}

    def test_metadata_without_namespaces(self, ask):
        """As protobuf.js writes it of an object whose keys are the namespaces."""
        answer = headers_answer(header=A, metadata=None)
        answer.dynamic_metadata.SetInParent()
        verdicts = ask(answered(answer, *echo(BODY)))
        assert verdicts.blamed == {"EPP-DEST-02"}
        assert "`fields`" in verdicts.finding("EPP-DEST-02").hint

    def test_a_later_namespace_that_is_no_struct(self, ask):
        """Envoy reads nothing of it; what was given before stays."""
        script = Script(pool=POOL)
        one = script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY)).response_headers(end=True)
        one.answers(with_metadata(headers_answer(side="response"), {NAMESPACE: "{}"})).drained()
        verdicts = ask(script)
        assert verdicts.blamed == verdicts.warned == {"ENV-14"}

    def test_a_namespace_of_an_error_that_is_no_struct(self, ask):
        for namespace in (NAMESPACE, "another"):
            verdicts = ask(answered(with_metadata(immediate(503), {namespace: "{}"}), pool={}))
            assert verdicts.blamed == verdicts.warned == {"ENV-14"}

    def test_no_destination_but_a_namespace_that_is_no_struct(self, ask):
        assert ask(given(header=None, metadata={NAMESPACE: "{}"})).blamed == {"EPP-DEST-01"}

    def test_nothing_at_all_is_one_finding(self, ask):
        assert ask(answered(headers_answer(), *echo(BODY))).blamed == {"EPP-DEST-01"}

    def test_nothing_for_a_request_without_a_body(self, ask):
        script = Script(pool=POOL)
        script.exchange(method="GET", path="/v1/models").request(None).answers(headers_answer()).drained()
        assert ask(script).blamed == {"EPP-DEST-07"}

    def test_header_on_the_full_duplex_body_answer_has_no_effect(self, ask):
        late = body_answer(
            header_mutation=HeaderMutation(set_headers=[option(DESTINATION, A)]),
            body_mutation=BodyMutation(
                streamed_response=echo(BODY)[0].request_body.response.body_mutation.streamed_response
            ),
        )
        verdicts = ask(answered(headers_answer(header=None, metadata=A), late))
        assert verdicts.failed == {"ENV-13"}

    def test_metadata_on_the_full_duplex_body_answer_is_a_warning(self, ask):
        verdicts = ask(answered(headers_answer(header=A, metadata=None), with_metadata(echo(BODY)[0], A)))
        assert verdicts.failed == set()
        assert verdicts.warned == {"EPP-DEST-08"}
        assert verdicts["EPP-DEST-05"] is Verdict.PASS
        differs = ask(answered(headers_answer(header=A, metadata=None), with_metadata(echo(BODY)[0], B)))
        assert differs.failed == {"EPP-DEST-05"}

    @pytest.mark.parametrize(("metadata", "said"), [(B, True), (f"{A},{B}", False)])
    def test_two_picks_are_told_from_a_list_that_was_cut(self, ask, metadata, said):
        finding = ask(answered(headers_answer(header=A, metadata=metadata))).finding("EPP-DEST-05")
        assert finding.verdict is Verdict.FAIL
        assert ("the object in which answers are built" in finding.hint) is said

    def test_metadata_with_the_response_is_too_late(self, ask):
        script = Script(pool=POOL)
        one = script.exchange().request(BODY).answers(headers_answer(header=A, metadata=None), *echo(BODY))
        one.response_headers(end=True).answers(with_metadata(headers_answer(side="response"), A)).drained()
        assert ask(script).blamed == {"ENV-14"}

    def test_another_destination_later(self, ask):
        script = Script(pool=POOL)
        one = script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY))
        one.response_headers(end=True).answers(with_metadata(headers_answer(side="response"), B)).drained()
        assert ask(script).blamed == {"EPP-DEST-08"}

    @pytest.mark.parametrize(
        ("mode", "chunks", "warned"),
        [("STREAMED", 1, {"EPP-DEST-08"}), ("STREAMED", 2, set()), ("FULL_DUPLEX_STREAMED", 1, set())],
    )
    def test_a_header_that_is_taken_away_again(self, ask, mode, chunks, warned):
        """As the client's is, by each answer. Real Envoy 1.40 takes that of a STREAMED body that it had whole."""
        script = Script(pool=POOL)
        one = script.exchange(mode=mode).request_headers().answers(headers_answer(A))
        removing = {"header_mutation": HeaderMutation(remove_headers=[DESTINATION])}
        for number in range(chunks):
            last = number + 1 == chunks
            mutation = BodyMutation(streamed_response={"body": BODY, "end_of_stream": last})
            more = {"body_mutation": mutation} if mode == "FULL_DUPLEX_STREAMED" else {}
            one.chunk(BODY, end=last).answers(body_answer(**removing, **more))
        one.drained()
        verdicts = ask(script)
        assert verdicts.blamed == verdicts.warned == warned

    @pytest.mark.parametrize(
        ("header", "first", "later", "blamed"),
        [
            (A, A, A, set()),
            (A, A, B, {"EPP-DEST-05"}),
            (A, A, f"{A},{B}", {"EPP-DEST-05"}),
            (A, A, "", {"EPP-DEST-05"}),
            (A, A, {NAMESPACE: {DESTINATION: None}}, {"EPP-DEST-05"}),
            (A, A, {NAMESPACE: {}}, set()),
            (A, B, A, {"EPP-DEST-05"}),
            (A, B, B, {"EPP-DEST-05"}),
            (None, A, B, {"EPP-DEST-01", "EPP-DEST-08"}),
        ],
    )
    def test_metadata_of_a_later_answer_of_the_request(self, ask, header, first, later, blamed):
        """Envoy 1.40 steers by the last metadata before the request goes on; others follow the header."""
        answers = headers_answer(header=header, metadata=first), with_metadata(echo(BODY)[0], later)
        assert ask(answered(*answers)).blamed == blamed

    def test_later_metadata_that_differs_in_blanks_alone(self, ask):
        answers = headers_answer(header=f"{A},{B}", metadata=f"{A},{B}"), with_metadata(echo(BODY)[0], f"{A}, {B}")
        verdicts = ask(answered(*answers))
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-DEST-05"})

    def test_metadata_of_the_trailers_answer(self, ask):
        script = Script(pool=POOL)
        one = script.exchange().request(BODY, trailers=True).answers(headers_answer(A), *echo(BODY, end=False))
        one.answers(with_metadata(trailers_answer(), B)).drained()
        assert ask(script).failed == {"EPP-DEST-05"}

    def test_another_header_where_it_has_no_effect(self, ask):
        late = echo(BODY)[0]
        late.request_body.response.header_mutation.set_headers.append(option(DESTINATION, B))
        assert ask(answered(headers_answer(A), late)).blamed == {"EPP-DEST-08"}


class TestScores:
    """Endpoint to number, in `next`: they inform, and steer nothing."""

    def scored(self, scores, *, namespace: str = NAMESPACE, pick: str = A, **exchange):
        metadata = {NAMESPACE: {DESTINATION: pick}}
        metadata.setdefault(namespace, {})[SCORES] = scores
        return answered(headers_answer(pick, metadata=metadata), *echo(BODY), **exchange)

    def test_the_right_shape(self, ask):
        verdicts = ask(self.scored({A: 0.5, B: 1, "[fd00::1]:80": -3.25}), "next")
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-12"] is Verdict.PASS

    @pytest.mark.parametrize(
        "scores", [[A], A, 1, None, {A: "0.5"}, {A: None}, {A: {B: 1}}, {"a": 1}, {"10.0.0.1": 1}, {f" {A}": 1}]
    )
    def test_another_shape_is_told_and_counts_for_nothing(self, ask, scores):
        verdicts = ask(self.scored(scores), "next")
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-12"] is Verdict.NOT_APPLICABLE
        assert verdicts.finding("EPP-DEST-12").actual

    def test_another_namespace(self, ask):
        assert "in vendor" in ask(self.scored({A: 1}, namespace="vendor"), "next").finding("EPP-DEST-12").actual

    @pytest.mark.parametrize("version", ["0.2.0", "1.0.0", "next"])
    def test_the_best_score_is_no_pick(self, ask, version):
        """Neither a stranger with a score nor a better one outside the subset is a destination."""
        scores = {"10.9.9.9:8000": 1000, B: 999, A: 0}
        assert ask(self.scored(scores), version).blamed == set()
        assert ask(self.scored(scores, subset=[A]), version).blamed == set()
        alone = answered(headers_answer(header=None, metadata={NAMESPACE: {SCORES: scores}}), *echo(BODY))
        assert ask(alone, version).failed == {"EPP-DEST-01"}

    def test_before_next_they_are_not_known(self, ask):
        assert ask(self.scored({A: 1}))["EPP-DEST-12"] is None


class TestForm:
    @pytest.mark.parametrize(
        "value",
        ["localhost:8000", "10.0.0.1", "http://10.0.0.1:8000", f"{A},", f",{A}", "10.0.0.1:0", "10.0.0.1:65536",
         "10.0.0.1:08000", "fd00::1:8000", "[10.0.0.1]:8000", "10.0.0.1:8o00", "10.0.0.01:8000",
         "[fe80::1%eth0]:80", f"{A};{B}"],
    )  # fmt: skip
    def test_malformed(self, ask, value):
        assert ask(given(value, value)).blamed == {"EPP-DEST-04"}

    @pytest.mark.parametrize("value", [f"{A}, {B}", f" {A}", f"{A},{A}"])
    def test_blanks_and_repetitions_warn(self, ask, value):
        verdicts = ask(given(value, value))
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-DEST-04"})

    def test_a_list_before_0_4_0(self, ask):
        assert ask(given(f"{A},{B}", f"{A},{B}"), "0.3.0").blamed == {"EPP-DEST-04"}

    def test_different_values(self, ask):
        assert ask(given(A, B)).blamed == {"EPP-DEST-05"}
        assert ask(given(f"{A},{B}", A)).blamed == {"EPP-DEST-05"}

    def test_values_that_differ_in_blanks(self, ask):
        verdicts = ask(given(f"{A},{B}", f"{A}, {B}"))
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-DEST-05"})

    def test_a_request_that_asks_for_no_model_is_steered_by_values_that_differ_in_blanks(self, ask):
        script = Script(pool=POOL)
        answers = (headers_answer(A, metadata=f"{A}\n"), *echo(b"{not json"))
        script.exchange().request(b"{not json").answers(*answers).drained()
        verdicts = ask(script)
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-DEST-05"})
        assert verdicts["EPP-DEST-07"] is Verdict.PASS

    def test_header_set_twice(self, ask):
        assert ask(given(A, B, options=[option(DESTINATION, B)])).blamed == {"EPP-DEST-05"}

    @pytest.mark.parametrize(
        ("overwrites", "warned"),
        [({}, {"EPP-TRN-07"}), ({"append_action": HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD}, set())],
    )
    def test_set_again_over_what_the_client_sent(self, ask, overwrites, warned):
        """All headers of the client are set again, and then our own: what goes on is our own."""
        sent = ((DESTINATION.encode(), C.encode()),)
        own = [option(DESTINATION, C), option(DESTINATION, A, **overwrites)]
        script = answered(headers_answer(A, header=None, options=own), *echo(BODY), headers=sent)
        verdicts = ask(script)
        assert verdicts.blamed == verdicts.warned == warned
        assert verdicts["EPP-DEST-05"] is Verdict.PASS

    def test_the_clients_empty_header_wins(self, ask):
        echoed = headers_answer(A, options=[option(DESTINATION, "")])
        sent = ((b"x-gateway-destination-endpoint", b""),)
        assert ask(answered(echoed, *echo(BODY), headers=sent)).blamed == {"EPP-DEST-05"}

    def test_the_clients_header_wins(self, ask):
        sent = ((b"X-Gateway-Destination-Endpoint", b"6.6.6.6:1"),)
        echoed = headers_answer(A, options=[option(DESTINATION, "6.6.6.6:1")])
        verdicts = ask(answered(echoed, *echo(BODY), headers=sent))
        assert verdicts.failed == {"EPP-DEST-05"}
        assert "client" in verdicts.finding("EPP-DEST-05").hint


class TestMembership:
    def test_a_stranger(self, ask):
        assert ask(given("10.9.9.9:8000", "10.9.9.9:8000")).blamed == {"EPP-DEST-06"}

    def test_a_stranger_behind_a_member(self, ask):
        value = f"{A},10.9.9.9:8000"
        assert ask(given(value, value)).blamed == {"EPP-DEST-06"}

    def test_the_wrong_port_of_a_member(self, ask):
        assert ask(given("10.0.0.1:9", "10.0.0.1:9")).blamed == {"EPP-DEST-06"}

    @pytest.mark.parametrize("state", [{"ready": False}, {"terminating": True}, {"selected": False}])
    def test_a_pod_that_is_not_eligible(self, ask, state):
        script = Script().pool(pod("a", A, **state), pod("b", B))
        script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == {"EPP-DEST-06"}

    def test_without_a_pool_membership_is_not_judged(self, ask):
        verdicts = ask(answered(headers_answer("10.9.9.9:8000"), *echo(BODY), pool=None))
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-06"] is None

    def test_between_asked_and_effective_both_states_are_right(self, ask):
        script = Script(pool=POOL).pool(pod("b", B), phases=("asked",))
        script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == set()
        script.pool(pod("b", B), phases=("delivered", "effective"))
        script.exchange().request(BODY).answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == {"EPP-DEST-06"}

    def test_a_change_while_the_request_is_decided(self, ask):
        script = Script(pool=POOL)
        one = script.exchange().request(BODY)
        script.pool(pod("d", "10.0.0.4:8000"))
        one.answers(headers_answer(A), *echo(BODY)).drained()
        assert ask(script).blamed == set()

    def test_an_earlier_destination_on_the_connection(self, ask):
        script = Script(pool=POOL)
        wanted = [A, B, A, C, B, C]
        for before, due in zip([A, *wanted], wanted, strict=False):
            one = script.exchange(subset=[due]).request(BODY)
            one.answers(headers_answer(before), *echo(BODY)).drained()
        assert ask(script).failed == {"EPP-DEST-10"}

    def test_an_earlier_destination_that_another_request_at_the_same_time_was_due(self, ask):
        script = Script(pool=POOL)
        for before, due in zip([A, B, C, A, B, C], [B, C, A, B, C, A], strict=True):
            other, one = script.exchange(subset=[before]), script.exchange(subset=[due])
            other.request(BODY)
            one.request(BODY).answers(headers_answer(before), *echo(BODY)).drained()
            other.answers(headers_answer(before), *echo(BODY)).drained()
        assert ask(script).failed == {"EPP-SUB-01"}

    def test_requests_for_different_endpoints_get_what_they_are_due(self, ask):
        script = Script(pool=POOL)
        for due in (A, B):
            script.exchange(subset=[due]).request(BODY).answers(headers_answer(due), *echo(BODY)).drained()
        assert ask(script)["EPP-DEST-10"] is Verdict.PASS


class TestNotSteered:
    @pytest.mark.parametrize("code", [400, 404, 413, 422])
    def test_a_malformed_body_may_get_any_4xx(self, ask, code):
        script = Script(pool=POOL)
        script.exchange().request(b"{not json").answers(immediate(code)).drained()
        verdicts = ask(script)
        assert verdicts.blamed == set()
        assert verdicts["EPP-DEST-07"] is Verdict.PASS

    def test_a_malformed_body_that_gets_500_is_a_warning(self, ask):
        script = Script(pool=POOL)
        script.exchange().request(b"{not json").answers(immediate(500)).drained()
        verdicts = ask(script)
        assert (verdicts.failed, verdicts.warned) == (set(), {"EPP-DEST-07"})

    @pytest.mark.parametrize(("body", "failed"), [(b"{not json", set()), (BODY, {"EPP-DEST-01"})])
    def test_a_buffered_body_is_whole_before_its_trailers(self, ask, body, failed):
        """Trailers that are never asked for, as the body was refused, leave no doubt of what the body was."""
        script = Script(pool=POOL)
        exchange = script.exchange(mode="BUFFERED").request_headers().answers(headers_answer(None))
        exchange.chunk(body).answers(immediate(400)).drained()
        verdicts = ask(script)
        assert verdicts.failed == failed
        assert failed or verdicts["EPP-DEST-07"] is Verdict.PASS

    @pytest.mark.parametrize(
        ("to_headers", "to_trailers", "failed"),
        [
            (headers_answer(None), trailers_answer(), {"EPP-DEST-07"}),
            (headers_answer(None), immediate(400), set()),
            (headers_answer(A), trailers_answer(), set()),
            (headers_answer("10.9.9.9:80"), trailers_answer(), {"EPP-DEST-06"}),
            (headers_answer(None), with_metadata(trailers_answer(), A), {"EPP-DEST-01"}),
        ],
    )
    def test_trailers_instead_of_a_buffered_body_let_the_request_go(self, ask, to_headers, to_trailers, failed):
        script = Script(pool=POOL)
        exchange = script.exchange(method="GET", mode="BUFFERED").request_headers().answers(to_headers)
        exchange.trailers().answers(to_trailers).drained()
        assert ask(script).failed == failed

    @pytest.mark.parametrize("code", [400, 404, 500, 502, 200])
    def test_an_ordinary_request_with_an_idle_pool_gets_an_endpoint(self, ask, code):
        assert ask(answered(immediate(code))).failed == {"EPP-DEST-01"}

    def test_an_idle_429_is_inconclusive(self, ask):
        assert ask(answered(immediate(429)))["EPP-DEST-01"] is Verdict.INCONCLUSIVE

    @pytest.mark.parametrize(("course", "idle"), [("steady", True), ("fills", False), ("at-odds", False)])
    def test_a_pod_whose_gauges_move_is_not_idle(self, ask, course, idle):
        """What the log has of them is where they began."""
        script = Script(pool=POOL)
        for name in POOL:
            script.gauges(name, queue=0, kv=0.1, metrics="ok", course=course if name == "a" else "steady")
        script.exchange().request(BODY).answers(immediate(429)).drained()
        assert ask(script).blamed == ({"EPP-DEST-01"} if idle else set())

    def test_503_with_a_ready_pool_fails(self, ask):
        assert ask(answered(immediate(503))).blamed == {"EPP-ERR-02"}
        assert ask(answered(immediate(503)), "0.2.0").blamed == {"EPP-DEST-01"}

    @pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "DELETE"])
    @pytest.mark.parametrize("version", ["0.2.0", "1.0.0", "next"])
    @pytest.mark.parametrize("code", [200, 400, 404, 405, 429, 500, 501])
    def test_a_plain_request_without_a_body_gets_an_endpoint(self, ask, method, version, code):
        """Also `/v1/models`, which an EPP may be tempted to answer itself."""
        script = Script(pool=POOL)
        script.exchange(method=method, path="/v1/models").request(None).answers(immediate(code)).drained()
        verdicts = ask(script, version)
        expected = {"EPP-DEST-01"} if code == 429 else {"EPP-DEST-07"}  # 429 of an idle pool is inconclusive
        assert verdicts.blamed == expected
        assert verdicts.failed == expected - {"EPP-DEST-01"}

    @pytest.mark.parametrize(
        ("code", "failed"),
        [(400, set()), (411, set()), (200, {"EPP-DEST-07"}), (500, {"EPP-DEST-07"})],
    )
    def test_a_post_without_content_may_be_malformed(self, ask, code, failed):
        script = Script(pool=POOL)
        script.exchange().request(None).answers(immediate(code)).drained()
        assert ask(script).failed == failed

    def test_503_for_a_request_without_a_body_although_there_is_an_endpoint(self, ask):
        script = Script(pool=POOL)
        script.exchange(method="GET").request(None).answers(immediate(503)).drained()
        assert ask(script).failed == {"EPP-ERR-02"}

    def test_mode_none_sees_no_body_and_is_ordinary(self, ask):
        script = Script(pool=POOL)
        script.exchange(mode="NONE").request(BODY).answers(headers_answer(A)).drained()
        assert ask(script).blamed == set()

    def test_streamed_chunks_are_not_needed_for_the_destination(self, ask):
        verdicts = ask(answered(headers_answer(A), streamed(BODY[:5]), streamed(BODY[5:], end=True)))
        assert verdicts.blamed == set()
