"""The `dispatch` processor: posts a topic's events to one HTTP subscriber.

Begin with `processor.py`. The path of an event: its partition's window (`window.py`: which events may be sent, up to where all
are finished) -> a job (`jobs.py`) -> its first step, the subscriber (`delivery.py`, within `limits.py`) -> perhaps its
reply (there, too), a topic where it waits (`delayed_retry.py`), the dead letter sink (`dead_letters.py`) -> the end
(`attempts.py`, which all steps share: requests, verdicts on answers, backoff).

`options.py` and `filters.py` are the configuration, `encoding.py` and `shapes.py` write requests, `transport.py` has the receivers
and the interface of transports; `requests_transport.py` is the other transport. All code runs on the thread of one event loop,
for all dispatching channels; it must not block the loop, or know Kafka. Reasons: docs/decisions/0020, 0064, 0065, 0069.
"""
