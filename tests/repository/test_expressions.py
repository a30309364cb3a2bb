"""Every regular expression of the product is listed, with the reason why no stranger's text makes it take long."""

from __future__ import annotations

import pytest

from tests.repository.expressions import PAGE, STRANGERS, expressions, found_in, listed


@pytest.mark.slow
def test_each_expression_is_listed_with_its_reason_and_what_is_listed_is_there() -> None:
    """Who adds one says there whose text it sees, and why that costs no more than its size."""
    known, without_reason = listed(PAGE.read_text())
    found = set(expressions())

    add = [
        f"{file}: add `{text}` to {PAGE.name}: under '{STRANGERS[3:]}' with the reason why it is linear, or, if no stranger's "
        "text comes to it, to the group below whose text it sees"
        for file, text in sorted(found - set(known))
    ]
    remove = [f"{file}: remove `{text}` from {PAGE.name}: the code has it no more" for file, text in set(known) - found]
    assert "\n".join([*add, *remove, *without_reason]) == ""


def test_the_list_is_read() -> None:
    """Those with a reason, those of others, and lines that say too little."""
    page = f"""- one way: this is text
{STRANGERS}
### `a.py`: words
- `a+`, ``b`+``: one set
- `c`: one
- and `d`: one character
## What others write
- `b.py`: `e`, `f`
- `c.py`
"""
    assert listed(page) == (
        {("a.py", "a+"): "one set", ("a.py", "b`+"): "one set", ("b.py", "e"): "", ("b.py", "f"): ""},
        ["- `c`: one", "- and `d`: one character", "- `c.py`"],
    )


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('import re\nre.fullmatch(r"\\d+", x)', r"\d+"),
        ('import re\nA = r"a+"\ndef f():\n    re.compile(A.encode()).match', "a+"),
        ('import re\nre.compile(b"[\\x00-\\x1f]")', r"[\x00-\x1f]"),
        ("import re\nre.compile(given + 'a')", "given + 'a'"),
        ('import re\nmap(re.compile, ["a"])', "re.compile"),
        ("import re as r", "import re"),
        ("from re import match", "from re import"),
        ("import fnmatch", "import fnmatch"),
    ],
)
def test_an_expression_is_found_however_it_is_written(source: str, text: str) -> None:
    """As it is where that is known, else as the code has it; other ways to one are found, too."""
    assert list(found_in(source)) == [text]
