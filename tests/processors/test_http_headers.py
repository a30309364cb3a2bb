"""Which headers go on beside an event: by their names."""

from __future__ import annotations

import pytest

from inbound.config import IngressConfig
from inbound.processors import http_headers
from inbound.processors.http_headers import DEFAULT_OUT, Forwarding

#: Never passed on, even if listed.
NEVER = (
    "Connection", "keep-alive", "TE", "trailer", "Transfer-Encoding", "Upgrade", "proxy-authorization", "Proxy-Anything",
    "Host", "content-type", "Content-Length", "content-encoding", "expect", "prefer", "accept-encoding",
    "Authorization", "Cookie", "set-cookie", "x-api-key", "X_Api_Key", "api.key",
    "ce-id", "ce_id", "CE_tenant", "inbound-dispatched", "Inbound_Dispatched", "knativeerrordest",
    "x-forwarded-for", "x-forwarded-client-cert", "forwarded", "X-Real-Ip", "x-http-method-override", "sec-fetch-site",
    "X-Forwarded", "client-ip", "x-original-forwarded-for", "x-envoy-external-address", "x-amzn-oidc-data",
    "x-ms-client-principal-id",
)  # fmt: skip
#: What no request can have as a name.
NO_NAMES = ("", "a b", "a:b", "a\r\nb: c", "größe", "x" * 257)


def passing(forwarding: Forwarding, *names: str) -> list[str]:
    return [name for name in names if forwarding.passes(name)]


@pytest.mark.parametrize("patterns", [DEFAULT_OUT, ("*", "*-*", *map(str.lower, NEVER))], ids=["default", "listed"])
def test_what_is_one_connections_or_a_credential_never_passes(patterns: tuple[str, ...]) -> None:
    """However it is written: many receivers do not tell `_` from `-`."""
    assert passing(Forwarding(patterns), *NEVER, *NO_NAMES) == []


def test_a_name_that_sounds_like_a_credential_passes_only_where_it_is_listed_in_full() -> None:
    """A pattern says nothing of it."""
    names = ("continuation-token", "x-jwt-claims", "x-session-id", "shop_password", "X-Cookie-Consent", "access-key")
    all_of_them, one = Forwarding(["*", "x-*"]), Forwarding(["*", "continuation-Token"])
    assert (passing(all_of_them, *names), passing(one, *names)) == ([], ["continuation-token"])


def test_an_ingress_keeps_what_knatives_channels_keep() -> None:
    """Ids of requests and of traces, in any case; nothing else."""
    kept = ("X-Request-Id", "knative-x", "X-B3-TraceId", "b3", "traceparent", "tracestate")
    passed = passing(
        Forwarding(IngressConfig().pass_headers), *kept, "x-request-id2", "knative", "user-agent", "accept"
    )
    assert passed == list(kept)


def test_patterns_are_globs_without_regard_to_case() -> None:
    """A star is any text, a question mark a character."""
    names = ("x-shop-a", "X-Shop-", "x-sho", "tenant", "tenants", "key1", "key12")
    assert passing(Forwarding(["X-shop-*", "Tenant", "key?"]), *names) == ["x-shop-a", "X-Shop-", "tenant", "key1"]
    assert passing(Forwarding([]), *names) == []


def test_what_a_request_has_already_does_not_pass() -> None:
    """Nor what may be read as the same."""
    assert passing(Forwarding(["*"], ["X-Tenant"]), "x-tenant", "X_TENANT", "x-tenants") == ["x-tenants"]


def test_names_of_strangers_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only so many are remembered; the others are decided each time."""
    monkeypatch.setattr(http_headers, "_KEPT", 3)
    forwarding = Forwarding(["x-*"])
    names = [f"x-{n}" for n in range(10)]
    assert (passing(forwarding, *names, *names), len(forwarding._known)) == (names * 2, 3)
