"""Two subscriptions of one topic whose filters let different events pass, by what their subscribers saw."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from integration.harness import both_clients
from integration.processors.dispatch.dispatching import MakeScene, channel_status
from integration.processors.sink import Sink

GOLD: dict[str, Any] = {"any": [{"exact": {"tier": "gold"}}, {"prefix": {"subject": "vip/"}}]}


@both_clients
def test_each_event_comes_to_the_one_of_two_subscriptions_whose_filters_it_passes(
    dispatching: MakeScene, sink: Sink
) -> None:
    """In both modes; both commit all of them, and the proof finds nothing left out."""
    s = dispatching(partitions=2)
    s.subscribe(subscriberUri=f"{sink.url}/gold", filters=[GOLD])
    s.subscribe("others", subscriberUri=f"{sink.url}/others", filters=[{"not": GOLD}], ordering="none")
    gold, others = [], []
    for _ in range(3):
        gold += s.send(5, tier="gold")
        others += s.send(100, tier="silver")
        gold += s.send(1, subject="vip/7")
        others += s.send(1)
        for ids, tier in ((gold, "gold"), (others, "silver")):
            (id,) = s.coming()
            event = {"specversion": "1.0", "id": id, "source": "/tests", "type": "order", "tier": tier, "data": "tier"}
            s.send_raw(json.dumps(event).encode(), [("content-type", b"application/cloudevents+json")])
            ids.append(id)
    (process,) = s.run()
    s.drained()
    s.drained("others")

    arrived = {path: Counter(id for one in sink.sent(path) for id in one.ids) for path in ("/gold", "/others")}
    said = {name: channel_status(s, process, name)["processor"] for name in ("orders", "others")}
    assert arrived == {"/gold": Counter(gold), "/others": Counter(others)}, s.log(process)
    assert {name: (one["delivered_total"], one["filtered_total"]) for name, one in said.items()} == {
        "orders": (len(gold), len(others)),
        "others": (len(others), len(gold)),
    }
