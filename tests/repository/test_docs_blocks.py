"""Every fenced block of the documentation is run, or read by what reads such a thing; see docs/decisions/0046-code-blocks.md.

Blocks that need servers run in `integration/repository/test_docs_blocks.py`; here their commands are parsed.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from inbound.plan.plugins import GROUP
from inbound.plan.resets import GROUP as MAPPERS
from integration.repository.docs_scenes import SCENES as WITH_SERVERS
from scripts.rooms import modules
from tests.repository.docs_blocks import ROOT, Block, blocks, of_page, pages, read
from tests.repository.docs_readers import check_yaml, furnish, run_python
from tests.repository.docs_shell import Shell, commands_of, difference, inline, refusal, words_of

#: The blocks that are not run, by page and reason: one more is a line here, and all of them are at most 15 % of the blocks.
NOT_RUN = {
    ("README.md", "minutes"): 2,
    ("docs/containers.md", "needs-docker"): 4,
    ("docs/kubernetes.md", "needs-kubernetes"): 1,
    ("docs/offsets-mirror.md", "minutes"): 1,
    ("docs/offsets.md", "minutes"): 1,
    ("docs/spark-archive.md", "needs-service"): 1,
    ("docs/spark-replay.md", "minutes"): 2,
    ("docs/spark.md", "minutes"): 1,
    ("docs/spark.md", "needs-service"): 1,
}
#: What is taken for a name of the code: with a dot or an underscore between letters, with capitals, in quotes, or a key.
NAME = re.compile(r"[A-Za-z]+(?:[._][A-Za-z]+)+|[A-Z][a-z]+[A-Z]\w+|\b[A-Z]{2,}\b|(?<=`)\w+(?=`)|(?<=\")\w+(?=\":)")


def treat(page: Sequence[Block], folder: Path) -> None:
    """Run or check the blocks of a page that need no servers; raises AssertionError with the page and the line."""
    furnish(folder, list(page))
    namespace: dict[str, Any] = {"__name__": "docs"}
    for block in page:
        try:
            match block.language, block.annotation:
                case "python", "" | "run":
                    run_python(block, folder, namespace)
                case "yaml", "":
                    check_yaml(block, folder)
                case "bash" | "console", "" | "run" | "not run":
                    check_commands(block)
                    if not block.annotation:
                        Shell(folder).follow(block)
                case "console" | "json" | "python" | "text", "names":
                    check_names(block)
                case "toml", "":  # entry points, in groups that inbound looks for
                    assert tomllib.loads(block.text)["project"]["entry-points"].keys() <= {GROUP, MAPPERS}, block.text
                case kind:
                    raise ValueError(f"nothing runs {' '.join(kind).strip()!r}")
        except (Exception, SystemExit) as error:
            raise AssertionError(f"{block}: {type(error).__name__}: {error}") from error


def check_names(block: Block) -> None:
    """What it names is in the code."""
    if block.language == "python":
        compile(block.text, block.page, "exec")
    if block.language == "console":
        check_commands(block)
    named = {part for found in NAME.findall(block.text) for part in found.split(".")} - {"read_table"}  # pyarrow's
    assert named <= words_of_the_code(), f"nothing in the code is called {sorted(named - words_of_the_code())}"


@cache
def words_of_the_code() -> frozenset[str]:
    return frozenset(word for _, path in modules().items() for word in re.findall(r"\w+", path.read_text()))


def check_commands(block: Block) -> None:
    """Each `inbound` is taken by its parser; what is not run can be read by bash; what is not annotated needs no server."""
    for command in commands_of(block):
        for words in words_of(command.typed):
            assert (why := refusal(words)) is None, f"inbound {' '.join(words)}: {why}"
        if block.annotation == "not run":
            bash = subprocess.run(["bash", "-n", "-c", command.typed], capture_output=True, text=True)
            assert (bash.returncode, bash.stderr) == (0, "")
        elif not block.annotation:
            alone = re.match(r"inbound (check|schema|new|manifests|--help|--version)[^|&;]*$", command.typed)
            assert alone, "say `<!-- run: ... -->` or `<!-- not run: ... -->`"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working folder, in which plugins are found; what was imported from it is forgotten."""
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if (getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("page", list(dict.fromkeys(block.page for block in blocks())))
def test_the_blocks_of_a_page_are_run_or_read(page: str, folder: Path) -> None:
    """New pages are found; a block that nothing runs fails."""
    treat(of_page(page), folder)


def test_every_scene_that_a_block_names_is_there_and_used() -> None:
    """Of the blocks that are not run the list is here, so that one more is seen."""
    named = {kind: Counter((b.page, b.value) for b in blocks() if b.annotation == kind) for kind in ("not run", "run")}

    assert {value for _, value in named["run"]} == WITH_SERVERS.keys() | {"ledger", "tutorial"}
    assert named["not run"] == NOT_RUN
    assert named["not run"].total() <= 0.15 * len(blocks())
    assert {"README.md", "CONTRIBUTING.md", "docs/configuration.md"} <= set(pages())


def test_every_command_in_code_quotes_is_taken_by_the_parser() -> None:
    """A text may name a command without all that it needs, but no option that there is not."""
    refused = [
        f"{page}:{line}: {command}: {why}"
        for page in pages()
        for line, command in inline((ROOT / page).read_text())
        for words in words_of(command)
        if (why := refusal(words, whole=False))
    ]

    assert refused == []


# -- wrong blocks --------------------------------------------------------------------------------------------------------

LAZY = """from inbound import BatchEventProcessor, BatchResponse
class Lazy(BatchEventProcessor):
    def on_next_batch(self, batch): return BatchResponse.revert()
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "text", "said"),
    [
        ("```cobol", "", "nothing runs 'cobol'"),
        ("<!-- not run: minutes -->\n```yaml", "", "nothing runs 'yaml not run'"),
        ("<!-- run: group -->\n\n```bash", "", "page.md:3: the annotation stands above no block"),
        ("```yaml\n```\n\n~~~bash", "a", "page.md:6: the block does not end"),
        ("<!-- names -->\n```text", "BatchResponse --> `worker` --> NoSuchThing", "called ['NoSuchThing']"),
        ("```toml", '[project.entry-points."inbound.fruit"]\na = "b:C"', "inbound.fruit"),
        ("```yaml", "channels: {orders: {topics: [orders], groop: x}}", "groop"),
        ("```yaml", "containers: [{args: [walk]}]", "walk"),
        ("```yaml", "fruit: apple", "nothing is known that has the keys fruit"),
        ("```python", "1 + 1  # (3): words", "AssertionError: 2"),
        ("```python", LAZY, "did not come about"),
        ("```console", "$ inbound check", "`inbound check`: ended with "),
        ("```bash", "inbound check; rm -r data", "say `<!-- run: ... -->`"),
        ("<!-- run: group -->\n```bash", "A=1 inbound status && cat a | inbound status --nonsense > b", "nonsense"),
        ("<!-- not run: minutes -->\n```bash", "make 'test", "No closing quotation"),
    ],
)  # fmt: skip
def test_a_wrong_block_is_named(head: str, text: str, said: str, folder: Path) -> None:
    """By page and line, with what is wrong."""
    with pytest.raises((AssertionError, ValueError), match=re.escape(said)) as caught:
        treat(read("page.md", f"# A page\n\n{head}\n{text}\n```\n"), folder)
    assert re.search(r"page\.md:[346]: ", str(caught.value))


@pytest.mark.parametrize(
    ("shown", "printed", "same"),
    [
        ("took 3.5 s,   pid 7 on web-1\n", "took 1 min 3 s, pid 4711 on localhost\n\n", True),
        ("one\n...\nfour; ...", "one\ntwo\nthree\nfour; five", True),
        ("one", "one\ntwo", False),
        ("lag 17", "lag 18", False),
        ('{"a": 1, "b": {...}, "c": null}', '{"c": 7, "b": {"c": 2}, "a": 2.5}', True),
        ('{"a": [{"b": 1}]}', '{"a": [{"b": "1"}]}', False),
    ],
)
def test_what_is_printed_is_compared_but_for_what_differs_from_run_to_run(shown: str, printed: str, same: bool) -> None:
    """Times, ids, space; JSON by its keys and the types of its values."""
    assert (difference(shown, printed) is None) is same


def test_commands_are_found_and_carried_out(tmp_path: Path) -> None:
    """Lines that go on are one; a folder that was changed to stays; names of the page are put in the place of ours."""
    bash = "# words\nmkdir one && cd one\n\ntouch \\\n  two\n[ -e ../one/two ]\n"
    shell = Shell(tmp_path, instead={"/app": "/here"})

    shell.follow(Block("page.md", 1, "bash", bash))
    shell.follow(Block("page.md", 9, "console", "$ echo /here 10:15:00\n/app 11:00:00\n"))
    with pytest.raises(AssertionError, match=r"page\.md:7: `echo one`: page \(-\)"):
        shell.follow(Block("page.md", 7, "console", "$ echo one\ntwo\n"))


def test_what_a_text_names_may_lack_arguments() -> None:
    """And has none that there are not; words in capitals stand for values."""
    found = inline("`inbound explain orders`\n`inbound explain TOPIC 3` `inbound status --nonsense` `inbound.yaml`\n")

    assert found == [(1, "inbound explain orders"), (2, "inbound explain TOPIC 3"), (2, "inbound status --nonsense")]
    for whole, good in ((True, [False, True, False]), (False, [True, True, False])):
        assert [refusal(words, whole) is None for _, command in found for words in words_of(command)] == good
