"""Values of the options that say what a request to a subscriber carries."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from inbound.config.values import Part, Problem, text, wrong, wrong_at
from inbound.processors.cloudevents_values import CORE, Refused, check_text, is_name
from inbound.processors.forwarded_headers import is_never
from inbound.processors.http_values import audience, certificates, header_globs

Certificates = Annotated[str, BeforeValidator(certificates)]
Audience = Annotated[str, BeforeValidator(audience)]
_CORE = ", ".join(sorted(CORE | {"data"}))


def passed_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Check which headers of a record are passed on: one that is listed in full has to be one that can."""
    problems: list[Problem] = [
        (
            (number,),
            wrong("is never passed on: it is the connection's, a credential, or one that inbound sets"),
            pattern,
        )
        for number, pattern in enumerate(header_globs(patterns))
        if is_never(pattern)
    ]
    if problems:
        raise wrong_at("pass_headers", problems)
    return patterns


def _extensions(given: dict[str, str]) -> dict[str, str]:
    """Check attributes that each event is given."""
    problems: list[Problem] = []
    for name, value in given.items():
        if not is_name(name) or name in CORE:
            problems.append(((name,), wrong(f"cannot be an extension: need a-z and 0-9, and none of {_CORE}"), None))
        elif name in ("traceparent", "tracestate"):
            problems.append(((name,), wrong("names the trace of one event, so it cannot be set for all"), None))
        try:
            check_text(name, value)
        except Refused as refused:
            problems.append(((name,), wrong(str(refused)), None))
    if problems:
        raise wrong_at("extensions", problems)
    return given


class CloudEventOverrides(Part):
    """What is changed in each event on its way to the subscriber; under Knative's names."""

    extensions: Annotated[dict[str, Annotated[str, BeforeValidator(text)]], AfterValidator(_extensions)] = Field(
        default_factory=dict, description="attributes that are added, or take the place of the event's own"
    )


PassedNames = Annotated[tuple[str, ...], AfterValidator(passed_names)]
