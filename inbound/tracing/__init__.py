"""Traces by OpenTelemetry. What needs its packages is imported when tracing is on, and not before: see `process.py`."""
