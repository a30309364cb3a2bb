"""What failed in a Spark job, in one line."""

from __future__ import annotations

import re

#: A line of a Java stack's chain that names what went wrong: `Caused by: org.x.SomeException: why`.
_CAUSED_BY = re.compile(r"^Caused by: (?:[\w$.]+\.)?([\w$]+): (.*)$", re.MULTILINE)
_LONGEST = 500


def cause(error: BaseException) -> str:
    """Return the innermost cause that a failed job's error names, or its first line."""
    try:
        text = str(error)  # of the JVM's exceptions: asks the JVM
        java = getattr(error, "java_exception", None)
        if java is not None:
            text = f"{text}\n{_chain(java)}"
    except Exception:  # which may have ended
        text = f"{type(error).__name__}, and Spark's JVM has ended"
    inner = _CAUSED_BY.findall(text)
    said = f"{inner[-1][0]}: {inner[-1][1]}" if inner else text.strip().split("\n")[0]
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _chain(java: object) -> str:
    """Return the causes of an exception of the JVM as its stack trace writes them."""
    lines: list[str] = []
    inner = java.getCause()  # type: ignore[attr-defined]
    while inner is not None and len(lines) < 20:
        lines.append(f"Caused by: {inner.toString()}".split("\n")[0])
        inner = inner.getCause()
    return "\n".join(lines)
