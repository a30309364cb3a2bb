"""The status page is one HTML document with style and script inside.

It loads nothing else, and asks the JSON routes of the admin port that it came from. There is no build step: it consists of the
files beside this one, one after the other. Begin with `page.html` and `main.js`.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources

#: The parts of the script, in order. Together they are one module: later ones use the names of earlier ones.
SCRIPTS = (
    *("dom", "words", "rows", "problems", "verdict", "state", "link", "control", "detail"),
    *("table", "top", "channels", "resets", "processes", "main"),
)
#: The parts of the style; the last one has the differences on a phone.
STYLES = ("base", "parts", "dialogs")


@cache
def status_page() -> tuple[bytes, tuple[tuple[str, str], ...]]:
    """Return the page, and its headers; reads the files once. Any thread."""
    folder = resources.files(__name__)
    style = "\n".join(folder.joinpath(f"{name}.css").read_text("utf-8") for name in STYLES)
    script = "\n".join(folder.joinpath(f"{name}.js").read_text("utf-8") for name in SCRIPTS)
    frame = folder.joinpath("page.html").read_text("utf-8")
    # The frame names each once; what is put in may hold any text but an end tag.
    before, _, rest = frame.partition("{style}")
    between, _, after = rest.partition("{script}")
    own = f"script-src '{_digest(script)}'; style-src '{_digest(style)}'; connect-src 'self'; img-src data:"
    policy = f"default-src 'none'; {own}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    return (
        f"{before}{style}{between}{script}{after}".encode(),
        (
            ("Content-Security-Policy", policy),
            ("X-Content-Type-Options", "nosniff"),
            ("X-Frame-Options", "DENY"),
            # With `no-referrer` a browser may send `Origin: null` with a POST, which is refused.
            ("Referrer-Policy", "same-origin"),
            ("Vary", "Accept"),
        ),
    )


def wants_html(accept: str | None) -> bool:
    """Whether an Accept header names HTML, as browsers do.

    `*/*` alone, or no header, is a tool's.
    """
    for item in (accept or "").split(","):
        kind, *parameters = (part.strip().lower().replace(" ", "") for part in item.split(";"))
        if kind == "text/html":
            return not any(parameter.startswith("q=") and not parameter.strip("q=0.") for parameter in parameters)
    return False


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
