"""A table of states: listed steps lead on, all others are refused with what they were about."""

from __future__ import annotations

import pytest

from inbound.controller.kafka_controller import SESSION, SessionEvent, SessionState
from inbound.errors import IllegalTransitionError


def test_a_listed_event_leads_to_the_next_state() -> None:
    """The table is the only place that says so."""
    assert SESSION.step(SessionState.DOWN, SessionEvent.CONNECTED) is SessionState.JOINING


def test_any_other_event_is_refused_with_the_state_and_the_event() -> None:
    """A defect names what moved, from where, and by which event."""
    with pytest.raises(IllegalTransitionError, match=r"^ZooKeeper session: no step 'joined' from 'closed'$"):
        SESSION.step(SessionState.CLOSED, SessionEvent.JOINED)
