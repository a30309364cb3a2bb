"""Traces by OpenTelemetry. Its packages are imported when tracing is switched on, and not before: see `process.py`.

`settings.py` reads the section and mounted folders, `spans.py` makes spans, `propagation.py` continues the traces of incoming
headers and samples new ones, `exporter.py` queues ended spans and sends them. `spans.py` has the names of attributes, too, and
traces `inbound publish`.
Other rooms know only the protocols in `processors/spans.py`; this room knows no channel. Begin with `process.py`. Reasons:
docs/decisions/0040-tracing.md.
"""
