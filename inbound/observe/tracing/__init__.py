"""Traces by OpenTelemetry, imported when tracing is first on.

Begin with `process.py`. `settings.py` reads the section and mounted folders, `spans.py` makes spans, names their attributes and
traces `inbound publish`, `propagation.py` continues the traces of incoming headers and samples new ones, `exporter.py` queues
ended spans and sends them.

Other rooms know only the protocols in `processors/spans.py`; this room knows no channel. Reasons: docs/decisions/0040-tracing.md.
"""
