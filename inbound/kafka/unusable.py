"""Says why kafka-python cannot be imported, for people."""

from __future__ import annotations

from importlib import import_module


def why(error: ImportError) -> str:
    """Return why an import of kafka-python, or of one of its modules, failed, and what to do about it."""
    if error.name == "kafka" and error.path is None:
        return "kafka-python is not installed; install it: pip install kafka-python"
    kafka = import_module("kafka")
    release = getattr(kafka, "__version__", None)
    if release is None:
        return (
            f"the module kafka is {getattr(kafka, '__file__', None)}, and not kafka-python: give that file another name"
        )
    from inbound.kafka.kafka_python_members import NEWEST, OLDEST

    return (
        f"kafka-python {release} lacks {error.name}, which inbound needs; install a release that was checked: "
        f"pip install 'kafka-python>={OLDEST},<={NEWEST}'"
    )
