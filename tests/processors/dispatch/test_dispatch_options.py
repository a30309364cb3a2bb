"""The options of a subscription, what an answer means and how long to wait: tables."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from inbound.config.units import parse_iso_duration
from inbound.config.values import WRITTEN
from inbound.processors.dispatch.attempts import AnswerVerdict, is_refusal, judge, wait_before
from inbound.processors.dispatch.options import DeliverySpec, DispatchOptions
from inbound.processors.dispatch.transport import Answer
from tests.http_receiver import CERTIFICATES

CA = (CERTIFICATES / "ca.pem").read_text()
URL = "http://billing.example/in"


def options(**given: Any) -> DispatchOptions:
    return DispatchOptions.model_validate({"subscriberUri": URL, **given}, context=WRITTEN)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PT0.2S", 0.2),
        ("PT1M30S", 90),
        ("PT168H", 604800),
        ("P1D", 86400),
        ("P1DT1H", 90000),
        ("P2W", 1209600),
        ("PT0,5S", 0.5),
    ],
)
def test_durations_are_read_as_iso_8601_has_them(text: str, seconds: float) -> None:
    """Knative writes them so."""
    assert parse_iso_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["P", "PT", "P1Y", "P1M", "PT1S1M", "1S", "PT-1S", "P1DT", "PT1.5M", "PT9999999999S", "pt1s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Years and months have no fixed length."""
    with pytest.raises(ValueError, match="duration"):
        parse_iso_duration(text)


def test_a_delivery_spec_is_read_under_knatives_names() -> None:
    """As it stands in a manifest."""
    spec = {
        "retry": 3,
        "backoffPolicy": "linear",
        "backoffDelay": "PT0.5S",
        "timeout": "PT2S",
        "deadLetterSink": {"uri": URL},
    }
    read = options(delivery=spec).delivery
    assert (read.retry, read.backoffPolicy, read.backoffDelay, read.timeout) == (3, "linear", 0.5, 2.0)
    assert read.deadLetterSink is not None
    assert read.deadLetterSink.uri == URL


@pytest.mark.parametrize(("given", "uri", "topic"), [(URL, URL, None), ("orders.dead", None, "orders.dead")])
def test_a_dead_letter_sink_is_a_url_or_a_topic(given: str, uri: str | None, topic: str | None) -> None:
    """Told apart by how it is written."""
    sink = options(delivery={"deadLetterSink": given}).delivery.deadLetterSink
    assert sink is not None
    assert (sink.uri, sink.topic) == (uri, topic)


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://host", "http://host"),
        ("https://host:8443", "https://host:8443"),
        ("//host", "http://host"),
        ("//host:8080/path?a=b", "http://host:8080/path?a=b"),
        ("//[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_a_host_alone_is_posted_to_over_http(written: str, url: str) -> None:
    """As Knative writes one; whose events, replies or dead letters they are makes no difference."""
    read = options(subscriberUri=written, replyUri=written, delivery={"deadLetterSink": written})
    sink = read.delivery.deadLetterSink
    assert sink is not None
    assert (read.subscriberUri, read.replyUri, sink.uri, sink.topic) == (url, url, url, None)


@pytest.mark.parametrize(
    ("given", "window"),
    [
        ({}, 500),
        ({"max_in_flight": 5}, 5),
        ({"batch": {"max_events": 200}}, 800),
        ({"batch": {}, "max_in_flight": 100}, 100),
    ],
)
def test_how_much_may_be_repeated(given: dict[str, Any], window: int) -> None:
    """Events, also where several go together."""
    assert options(**given).window == window


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"subscriberUri": "ftp://x/"}, "need a URL of printable ASCII"),
        ({"subscriberUri": "http://user:secret@x/"}, "holds a user or password"),
        ({"subscriberUri": "//user:secret@x/"}, "holds a user or password"),
        ({"subscriberUri": "secret.example"}, "need a URL of printable ASCII"),
        ({"subscriberUri": "secret.example:8080/in"}, "need a URL of printable ASCII"),
        ({"subscriberUri": "///secret"}, "need a URL of printable ASCII"),
        ({"subscriberUri": "//"}, "need a URL of printable ASCII"),
        ({"subscriberUri": "//secret:99999"}, "need a URL such as"),
        ({"delivery": {"backoffDelay": 5}}, "need a duration"),
        ({"delivery": {"timeout": "PT0S"}}, "need more than"),
        ({"delivery": {"deadLetterSink": {"uri": URL, "topic": "t"}}}, "needs either uri or topic"),
        ({"delivery": {"retries": 5}}, "Extra inputs"),
        ({"batch": {}, "max_in_flight": 99}, "need at least batch.max_events"),
        ({"batch": {}, "mode": "structured"}, "is for single events"),
        ({"client_key": "key.pem"}, "is used only with client_cert"),
        ({"headers": {"ce-id": "x"}}, "is a header that inbound sets itself"),
        ({"ordering": "strict"}, "'partition', 'key' or 'none'"),
        ({"pass_headers": ["x-*", "X_Api_Key"]}, "is never passed on"),
        ({"pass_headers": ["proxy-secret"]}, "is never passed on"),
        ({"pass_headers": ["a b"]}, "need a header's name, or a pattern"),
        ({"ceOverrides": {"extensions": {"Tenant": "x"}}}, "cannot be an extension"),
        ({"ceOverrides": {"extensions": {"source": "x"}}}, "cannot be an extension"),
        ({"ceOverrides": {"extensions": {"tenant": 1}}}, "need text"),
        ({"ceOverrides": {"extensions": {"tenant": "a\nb"}}}, "holds U+000A"),
        ({"ceOverrides": {"extensions": {"traceparent": "00"}}}, "names the trace of one event"),
        ({"subscriberCACerts": "secret"}, "need certificates in PEM"),
        ({"subscriberCACerts": "-----BEGIN CERTIFICATE-----\nsecret\n-----END CERTIFICATE-----"}, "need certificates"),
        ({"subscriberCACerts": ""}, "need certificates in PEM"),
        ({"subscriberCACerts": CA + "-----BEGIN CERTIFICATE-----\nMA==\n-----END CERTIFICATE-----"}, "nothing broken"),
        ({"subscriberCACerts": "ü"}, "need certificates in PEM"),
        ({"delivery": {"deadLetterSink": {"topic": "t", "audience": "a"}}}, "are for a uri"),
        ({"subscriberAudience": "a"}, "is used only with a token_file such as /folder/{audience}"),
        ({"replyAudience": "a", "token_file": "/t/one"}, "is used only with a token_file such as /folder/{audience}"),
        ({"subscriberAudience": "a\nb", "token_file": "/t/{audience}"}, "need an audience"),
        ({"token_file": "/t/{audience}/token"}, "can only be the last part"),
        ({"token_file": "/t/one", "headers": {"Authorization": "x"}}, "which headers has"),
    ],
)
def test_what_cannot_be_meant_is_refused(given: dict[str, Any], problem: str) -> None:
    """With what is allowed instead, and no secret in it."""
    with pytest.raises(ValidationError) as refused:
        options(**given)
    said = str([error["msg"] for error in refused.value.errors()])
    assert (problem in said, "secret" in said.replace("secrets", "")) == (True, False), said


# -- retries ----------------------------------------------------------------------------------------------------------


TAKEN, AGAIN, PARTS, REFUSED = AnswerVerdict.TAKEN, AnswerVerdict.AGAIN, AnswerVerdict.PARTS, AnswerVerdict.REFUSED


@pytest.mark.parametrize(
    ("statuses", "alone", "together", "final"),
    [
        ((200, 202, 204, 299), TAKEN, TAKEN, None),
        ((404, 408, 425, 429, 502, 503, 504), AGAIN, AGAIN, False),
        ((409, 500, 501, 507, 599), AGAIN, PARTS, False),
        ((301, 302, 307, 308, 400, 401, 403, 405, 410, 413, 415, 422, 451), REFUSED, PARTS, True),
    ],
)
def test_what_a_status_means(
    statuses: tuple[int, ...], alone: AnswerVerdict, together: AnswerVerdict, final: bool | None
) -> None:
    """For one event, and for a batch."""
    answers = [Answer(status) for status in statuses]
    assert ({judge(a, 1) for a in answers}, {judge(a, 9) for a in answers}) == ({alone}, {together})
    assert final is None or {is_refusal(a) for a in answers} == {final}


def test_no_whole_answer_is_no_answer() -> None:
    """For any status."""
    answer = Answer(202, problem="the connection broke")
    assert (judge(answer, 1), judge(answer, 9), is_refusal(answer)) == (AGAIN, AGAIN, False)


@pytest.mark.parametrize(
    ("policy", "endless", "retry_after", "waits"),
    [
        ("linear", False, None, [1, 2, 3, 4, 60]),
        ("exponential", False, None, [1, 2, 4, 8, 60]),
        ("exponential", True, None, [1, 2, 4, 5, 5]),
        ("linear", False, 2.5, [2.5, 2.5, 3, 4, 60]),
        ("linear", False, 10_000.0, [300] * 5),
    ],
)
def test_how_long_to_wait(policy: str, endless: bool, retry_after: float | None, waits: list[float]) -> None:
    """After 1, 2, 3, 4 and 1,000 failures, with a delay of one second."""
    spec = DeliverySpec.model_validate({"backoffPolicy": policy, "backoffDelay": "PT1S"})
    answer = Answer(500, retry_after=retry_after)
    assert [wait_before(n, spec, answer, endless=endless) for n in (1, 2, 3, 4, 1000)] == waits


@pytest.mark.parametrize(
    ("longest", "waits"),
    [
        (None, {429: 20.0, 503: 20.0, 500: 20.0, 404: 20.0}),
        ("PT30S", {429: 20.0, 503: 20.0, 500: 1.0, 404: 1.0}),
        ("PT5S", {429: 5.0, 503: 5.0, 500: 1.0, 404: 1.0}),
        ("PT0.5S", {429: 1.0, 503: 1.0, 500: 1.0, 404: 1.0}),
        ("PT0S", {429: 1.0, 503: 1.0, 500: 1.0, 404: 1.0}),
    ],
)
def test_whose_retry_after_counts_and_how_long(longest: str | None, waits: dict[int, float]) -> None:
    """Of 20 seconds, beside a back-off of one: as Knative has it where `retryAfterMax` is given, else of every answer."""
    spec = DeliverySpec.model_validate({"backoffDelay": "PT1S", "retryAfterMax": longest})
    found = {status: wait_before(1, spec, Answer(status, retry_after=20.0), endless=False) for status in waits}
    assert found == waits


def test_a_bound_of_retry_after_may_be_longer_than_the_usual_one() -> None:
    """Five minutes are for those who say nothing."""
    spec = DeliverySpec.model_validate({"retryAfterMax": "PT1H"})
    assert wait_before(1, spec, Answer(503, retry_after=100_000.0), endless=True) == 3600


def test_a_long_delay_is_not_cut_short() -> None:
    """Who asks for five minutes gets them."""
    spec = DeliverySpec.model_validate({"backoffDelay": "PT5M"})
    assert wait_before(1, spec, Answer(500), endless=True) == 300
