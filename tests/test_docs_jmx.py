"""docs/jmx.md: its tables are those of the code, its policy works."""

from __future__ import annotations

import re

import pytest

from inbound.config import load_policy
from inbound.jmx.names import ObjectName
from inbound.jmx.policy import Policy
from inbound.jmx.tables import KINDS
from scripts.document_jmx import DOCUMENT, renewed


def test_the_tables_are_up_to_date() -> None:
    """An attribute that was added, or described in other words, is not in the document until `make docs` has run."""
    text = DOCUMENT.read_text()
    assert text == renewed(text), "run `make docs`"


def test_a_document_without_the_marks_is_refused() -> None:
    """Rather than left without its tables."""
    with pytest.raises(ValueError, match="needs the lines"):
        renewed("nothing")


def test_the_policy_that_is_shown_means_what_is_said_of_it() -> None:
    """Monitoring reads, operators may pause and slow down, nobody reads members' ids."""
    (text,) = re.findall(r"```yaml\n(# policy\.yaml.*?)```", DOCUMENT.read_text(), re.DOTALL)
    policy = Policy(load_policy(text, "policy.yaml"), "policy.yaml")
    channel = ObjectName.parse("inbound:type=Channel,name=orders")
    asked = [("read", "Lag"), ("read", "Members"), ("write", "MaxReadRate"), ("exec", "pause"), ("exec", "rebalance")]
    assert [policy.member(command, channel, member) for command, member in asked] == [True, False, True, True, False]
    assert [policy.lets_in(host) for host in ("127.0.0.1", "10.9.8.7", "192.168.0.1")] == [True, True, False]


def test_no_name_is_there_twice_and_everything_is_described() -> None:
    """And no attribute has a name that Hadoop's servlet would leave out."""
    for kind, _ in KINDS:
        names = [attribute.name for attribute in kind.attributes]
        signatures = [action.signature for action in kind.actions]
        assert (len(set(names)), len(set(signatures))) == (len(names), len(signatures))
        assert all(re.fullmatch("[A-Z][A-Za-z]+", name) for name in names)
        described = [a.description for a in kind.attributes] + [a.description for a in kind.actions]
        assert all(text and not text.endswith(".") for text in described)
