"""Topic ids: one form for all Kafka clients, and whether two ids name one topic.

Kafka gives each topic 16 bytes. kafka-python writes them as a UUID, librdkafka as base64 with `+` and `/`, Java as base64
with `-` and `_`. Earlier releases stored whatever their client wrote, so a node may hold any of these forms.
"""

from __future__ import annotations

import re
import uuid
from base64 import urlsafe_b64decode

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{22}(==)?")


def canonical(topic_id: str) -> str | None:
    """Return an id as a UUID; as it stands if its form is unknown; None for the zero id of brokers without ids."""
    known = _uuid(topic_id)
    if known is None:
        return topic_id
    return str(known) if known.int else None


def same_topic(one: str, other: str) -> bool | None:
    """Return whether two ids name one topic; None: they cannot be compared, as only one is in a form known here.

    Two ids in an unknown form are compared as text.
    """
    if one == other:
        return True
    a, b = _uuid(one), _uuid(other)
    if (a is None) != (b is None):
        return None
    return a is not None and a == b


def _uuid(text: str) -> uuid.UUID | None:
    if _BASE64.fullmatch(text):
        return uuid.UUID(bytes=urlsafe_b64decode(text[:22].replace("+", "-").replace("/", "_") + "=="))
    try:
        return uuid.UUID(text)
    except ValueError:
        return None
