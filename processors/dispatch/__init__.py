"""The `dispatch` processor: posts a topic's events to one HTTP subscriber.

Begin with `processor.py`. The way of an event: its partition's window (`window.py`: which events may go, up to where all
are finished) -> a job (`jobs.py`) -> its first step, the subscriber (`delivery.py`, within `limits.py`) -> perhaps its
reply (there, too), a topic where it waits (`delayed_retry.py`), the dead letter sink (`dead_letters.py`) -> the end
(`attempts.py`, which has what all steps share: requests, verdicts on answers, backoff).

`options.py` and `filters.py` are the configuration, `encoding.py` writes requests, `transport.py` names receivers and
what carries requests to them; `requests_transport.py` is the other transport. All runs on the thread of one event loop,
for all dispatching channels; nothing here may block it, or know of Kafka. Reasons: docs/decisions/0020, 0064, 0065, 0069.
"""
