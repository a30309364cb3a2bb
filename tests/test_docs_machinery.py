"""What reads the blocks of the documentation (`docs_*.py`): wrong blocks, commands and outputs are found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs_blocks import Block, blocks, blocks_of, of_page, outside_blocks, pages, problem_of
from tests.docs_commands import commands_of, inline, is_alone, refusal, words_of
from tests.docs_drawings import drawing_problem
from tests.docs_printed import difference
from tests.docs_python import run_python
from tests.docs_shell import Shell, Steps
from tests.docs_yaml import check_yaml, furnish

PAGE = """# A page
<!-- run: group -->
```console
$ inbound offsets show \\
    --json
{}
```
1. in a list

   ```yaml
   # more/policy.yaml: who may what
   allow: []
   ```

~~~
```
~~~
"""

CHANNEL = "kind: KafkaChannel\napiVersion: messaging.knative.dev/v1beta1\nmetadata: {name: a, namespace: b}\n"


def block(language: str, text: str, annotation: str = "", value: str = "") -> Block:
    return Block("page.md", 1, language, text, annotation, value)


def test_blocks_are_found_with_language_annotation_and_line() -> None:
    """Also in lists, between tildes, and with a fence inside."""
    found = list(blocks_of("page.md", PAGE))

    assert [(b.line, b.language, b.annotation, b.value, b.file) for b in found] == [
        (3, "console", "run", "group", ""),
        (10, "yaml", "", "", "more/policy.yaml"),
        (15, "text", "", "", ""),
    ]
    assert (found[1].text, found[2].text) == ("# more/policy.yaml: who may what\nallow: []\n", "```\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("```\nnever ends\n", "page.md:1: the block does not end"),
        ("<!-- run: group -->\n\n```bash\n```\n", "page.md:1: the annotation stands above no block"),
    ],
)
def test_a_page_that_cannot_be_read_is_refused(text: str, said: str) -> None:
    """With page and line."""
    with pytest.raises(ValueError, match=said):
        list(blocks_of("page.md", text))


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (block("cobol", ""), "nothing runs 'cobol'"),
        (block("text", "a"), "text that nothing checks"),
        (block("json", "{}"), "json that nothing checks"),
        (block("yaml", "", "not run", "minutes"), "yaml takes no annotation 'not run'"),
        (block("bash", "", "not run", "laziness"), "'laziness' is no reason"),
        (block("bash", "", "run"), "needs a name behind a colon"),
    ],
)
def test_a_block_that_nothing_runs_is_named(kind: Block, said: str) -> None:
    """A language nobody knows, text that nothing compares, a reason that is none."""
    assert said in (problem_of(kind) or "")


def test_a_directive_is_for_the_generator_of_the_site() -> None:
    """Which fails on one that it cannot carry out."""
    assert problem_of(block("{toctree}", "")) is None


def test_the_pages_are_there() -> None:
    """So the tests of their blocks look at something; decision records tell what was, and are left out."""
    assert {"README.md", "CONTRIBUTING.md", "docs/configuration.md"} <= set(pages())
    assert not [page for page in pages() if "decisions" in page or "CHANGELOG" in page]
    assert len(blocks()) >= 67
    assert [b.page for b in of_page("README.md")] == ["README.md"] * len(of_page("README.md"))


def test_commands_and_what_is_shown_below_them() -> None:
    """Lines that go on are one; of a console block only what stands behind `$ ` is typed."""
    first, *_ = blocks_of("page.md", PAGE)

    assert [(c.typed, c.shown) for c in commands_of(first)] == [("inbound offsets show --json", "{}\n")]
    typed = commands_of(block("bash", "# words\none\n\ncat <<END\ntwo\nEND\nthree\n"))
    assert [c.typed for c in typed] == ["one", "cat <<END\ntwo\nEND", "three"]
    with pytest.raises(ValueError, match="begins with"):
        commands_of(block("console", "no prompt\n"))


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("inbound check -c a.yaml  # words", [["check", "-c", "a.yaml"]]),
        ("python -m inbound run && cat a | inbound publish t -f - > out", [["run"], ["publish", "t", "-f", "-"]]),
        ("A=1 inbound status", [["status"]]),
        ("pip install inbound", []),
        ("cat inbound.yaml", []),
    ],
)
def test_command_lines_of_inbound_are_found(line: str, found: list[list[str]]) -> None:
    """Wherever they stand in a line of the shell."""
    assert list(words_of(line)) == found


@pytest.mark.parametrize(
    ("line", "whole", "good"),
    [
        ("explain TOPIC PARTITION", True, True),
        ("explain orders", True, False),
        ("explain orders", False, True),
        ("status --nonsense", False, False),
        ("resume … --consumer …", True, True),
        ("--version", True, True),
    ],
)
def test_the_parser_says_what_can_be_typed(line: str, whole: bool, good: bool) -> None:
    """With words in capitals for values; what a text names may lack arguments, and have none that there are not."""
    assert (refusal(line.split(), whole) is None) is good


def test_commands_in_code_quotes_are_found_outside_of_blocks() -> None:
    """With their lines."""
    page = "see `inbound run`\n```bash\n`inbound nothing`\n```\nor `python -m inbound offsets show --json`, `inbound.yaml`\n"

    assert inline(page) == [(1, "inbound run"), (5, "python -m inbound offsets show --json")]
    assert outside_blocks(page).splitlines()[1:4] == ["", "", ""]


def test_only_commands_that_need_no_server_go_without_a_scene() -> None:
    """A block with any other says on which state it runs."""
    assert is_alone(block("bash", "inbound schema > a.json\ninbound check\n"))
    assert not is_alone(block("bash", "inbound check\ninbound run\n"))
    assert not is_alone(block("bash", "rm -r data\n"))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("took 3.5 s, pid 7 on web-1", "took 12 ms, pid 4711 on localhost", True),
        ("A  B\n1  2\n", "A      B\n1      2\n\n", True),
        ("one\n...\nfour", "one\ntwo\nthree\nfour", True),
        ("one\n...", "one\ntwo\nthree", True),
        ("took 63.0 s", "took 1 min 3 s", True),
        ("since 01:49:35 (22 s); ...", "since 02:00:00 (1.5 min); do this", True),
        ("one\ntwo", "one\nthree", False),
        ("one", "one\ntwo", False),
        ("lag 17", "lag 18", False),
        ('{"a": 1, "b": {...}}', '{"b": {"c": 2}, "a": 2.5}', True),
        ('{"a": 1}', '{"a": "1"}', False),
        ('{"a": [{"b": 1}]}', '{"a": [{"c": 1}]}', False),
        ('{"a": null}', '{"a": 7}', True),
    ],
)
def test_what_is_printed_is_compared_but_for_what_differs_from_run_to_run(shown: str, printed: str, same: bool) -> None:
    """Times, ids, space; JSON by its keys and the types of its values."""
    assert (difference(shown, printed) is None) is same


def test_a_drawing_with_a_name_that_is_gone_is_found() -> None:
    """Or one of an enum that lacks a member."""
    assert drawing_problem(block("text", "BatchResponse --> `worker` --> processor.on_next_batch", "drawing")) is None
    assert "NoSuchThing" in (drawing_problem(block("text", "NoSuchThing --> here", "drawing")) or "")
    assert "GONE" in (drawing_problem(block("text", "STARTING", "drawing", "inbound.partition:Place")) or "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("channels: {orders: {topics: [orders], groop: x}}", "groop"),
        ("workers: many", "channels.orders.workers"),
        (f"{CHANNEL}spec: {{subscribers: [{{uid: u, subscriberUri: 'http://a/', delivery: {{retry: x}}}}]}}\n", "retry"),
        ("containers: [{args: [walk]}]", "walk"),
        ("containers: [{livenessProbe: {httpGet: {path: /alive}}}]", "/alive"),
        ("rule_files: [nowhere.yaml]", "nowhere.yaml"),
        ("groups: [{name: a, rules: [{alert: A, expr: inbound_nothing > 1}]}]", "inbound_nothing"),
        ("fruit: apple", "nothing is known that has the keys fruit"),
    ],
)  # fmt: skip
def test_wrong_yaml_is_refused(text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what reads it, with what is wrong."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    furnish(tmp_path, [])
    with pytest.raises(Exception, match=said):
        check_yaml(block("yaml", text), tmp_path)


@pytest.mark.parametrize(
    "text",
    ["1 / 0\n", "assert 1 == 2\n", "1 + 1  # 3\n", "1 + 1  # 3: words\n", "from inbound import Nothing\n"],
)
def test_wrong_python_is_refused(text: str, tmp_path: Path) -> None:
    """Also where a comment says another value than comes out."""
    with pytest.raises((AssertionError, ZeroDivisionError, ImportError)):
        run_python([block("python", text)], tmp_path)


def test_a_processor_of_a_page_that_loses_records_is_refused(tmp_path: Path) -> None:
    """It takes part in a group, and has to commit what it is given."""
    text = (
        "from inbound import BatchEventProcessor, BatchResponse\n"
        "class Lazy(BatchEventProcessor):\n"
        "    def on_next_batch(self, batch):\n        return BatchResponse.revert()\n"
    )
    with pytest.raises(AssertionError, match="did not come about"):
        run_python([block("python", text)], tmp_path)


@pytest.mark.parametrize(
    ("language", "text", "good"),
    [
        ("bash", "mkdir one && cd one\ntouch two\n[ -e ../one/two ]\n", True),
        ("bash", "false\n", False),
        ("console", "$ echo 10:15:00 one\n11:00:00 one\n", True),
        ("console", "$ echo one\ntwo\n", False),
        ("console", "$ echo /here\n/app\n", True),
    ],
)
def test_commands_are_carried_out_and_compared(language: str, text: str, good: bool, tmp_path: Path) -> None:
    """A folder that was changed to stays; names of the page are put in the place of what stands here."""
    steps = Steps(Shell(tmp_path, instead={"/app": "/here"}))

    if good:
        steps.run(block(language, text))
    else:
        with pytest.raises(AssertionError, match=r"page\.md:1"):
            steps.run(block(language, text))
