"""What `make test` runs: each promise of the README, each command and each fault at least once on real servers."""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from inbound.cli.main import parser

ROOT = Path(__file__).resolve().parent.parent.parent
LETTERS = "integration/dead_letters/test_dead_letters::test_letters_are_listed_shown_redriven_to_their_topic_and_purged"
#: Each command, and the test in `make test` that runs it: on real servers, where it talks to any.
COMMANDS = {
    "acl": "integration/cli/test_acl_command::test_open_nodes_are_named_then_closed",
    "check": "tests/cli/test_cli::test_a_good_configuration_is_reported_as_good",
    "cluster down": "integration/embedded/test_embedded::test_a_detached_cluster_lives_until_down_and_not_without_its_supervisor",
    "cluster fetch": "tests/embedded/test_embedded_jars::test_the_first_fetch_fills_the_cache_and_the_second_asks_nobody",
    "cluster status": "integration/embedded/test_embedded::test_a_detached_cluster_lives_until_down_and_not_without_its_supervisor",
    "cluster up": "integration/embedded/test_embedded::test_up_in_the_foreground_ends_with_a_signal",
    "dead-letters list": LETTERS,
    "dead-letters purge": LETTERS,
    "dead-letters redrive": LETTERS,
    "dead-letters show": LETTERS,
    "demo": "integration/cli/test_commands::test_the_demo_loses_nothing_and_repeats_no_more_than_it_may",
    "explain": "integration/cli/test_every_command::test_a_record_that_a_processor_fails_on_is_held_shown_and_holds_nothing_else",
    "ingress": "integration/ingress/test_ingress::test_after_a_kill_under_load_every_202_is_in_the_log",
    "manifests": "tests/cli/test_manifests_command::test_kubernetes_takes_every_object",
    "new processor": "integration/cli/test_commands::test_a_new_processor_runs_against_real_servers",
    "offsets delete": "integration/offsets/test_offsets::test_a_group_is_deleted_only_when_it_is_silent",
    "offsets export": "integration/offsets/test_offsets::test_offsets_go_out_and_in_again_and_the_group_reads_from_there",
    "offsets import": "integration/offsets/test_offsets::test_offsets_go_out_and_in_again_and_the_group_reads_from_there",
    "offsets reset": "integration/cli/test_reset_command::test_what_a_dry_run_prints_is_done_and_printed_again",
    "offsets show": "integration/offsets/test_offsets::test_show_says_what_the_servers_say",
    "pause": "integration/group/test_pause::test_a_group_is_paused_by_command_and_resumed_by_post_under_load",
    "publish": "integration/cli/test_commands::test_a_file_and_the_lines_of_a_pipe_are_published",
    "rebalance": "integration/group/test_pause::test_a_group_is_paused_by_command_and_resumed_by_post_under_load",
    "reload": "integration/cli/test_every_command::test_a_record_that_a_processor_fails_on_is_held_shown_and_holds_nothing_else",
    "resume": "integration/cli/test_every_command::test_a_record_that_a_processor_fails_on_is_held_shown_and_holds_nothing_else",
    "run": "integration/process/test_survival::test_sigkill_inside_a_batch_loses_nothing_and_repeats_only_that_batch",
    "schema": "tests/plan/test_installed_processors::test_a_processor_is_used_by_the_name_that_its_distribution_gives_it",
    "spark archive": "integration/spark/test_spark_archive::test_every_record_is_kept_where_it_belongs",
    "spark replay": "integration/spark/test_spark_replay::test_each_partition_is_replayed_in_order_and_once_under_every_fault",
    "spark report": "integration/spark/test_spark_report::test_the_figures_are_those_of_an_independent_account",
    "spark validate": "integration/spark/test_spark_validate::test_every_kind_of_finding_is_known_from_what_only_looks_like_it",
    "status": "integration/cli/test_every_command::test_a_record_that_a_processor_fails_on_is_held_shown_and_holds_nothing_else",
}
#: What must be shown on real servers beside the README's table and the commands.
SHOWN = {
    "a reset whose leader is killed": (
        "integration/controller/reset_offset/test_resets"
        "::test_a_leader_that_is_killed_after_a_step_is_followed_by_another"
    ),
    "a reload of the configuration": (
        "integration/process/test_reload::test_what_needs_no_other_member_changes_while_partitions_stay_and_a_bad_edit_is_refused"
    ),
    "the page in a browser": "integration/admin/test_status_page_servers::test_a_night_with_one_process",
    "the proof in a browser": "integration/report/test_proof_page::test_a_person_sees_rows_bars_and_marks",
}


@pytest.fixture(scope="module")
def running() -> set[str]:
    """Every test that `make test` collects in the files named here, as `folder/test_file::test_name`."""
    named = [*COMMANDS.values(), *SHOWN.values()]
    files = {f"{name.partition('::')[0]}.py" for name in named if name.startswith("tests/")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "not thorough", "integration", *sorted(files)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {line.partition("[")[0].replace(".py::", "::") for line in done.stdout.splitlines() if "::" in line}


def rows_of_the_readme() -> dict[str, list[str]]:
    """Return the table of promises: what happens, and the tests that its row names."""
    lines = (ROOT / "README.md").read_text().splitlines()
    header = next(number for number, line in enumerate(lines) if line.startswith("| what happens |"))
    table = {}
    for line in lines[header + 2 :]:
        if not line.startswith("|"):
            break
        table[line.split("|")[1].strip()] = [
            f"{file}::{test}" for file, test in re.findall(r'\((integration/[\w/]+)\.py "(\w+)"\)', line)
        ]
    return table


def commands(of: argparse.ArgumentParser, before: str = "") -> Iterator[str]:
    """Yield every command there is, such as `offsets show`."""
    below = [action for action in of._actions if isinstance(action, argparse._SubParsersAction)]
    if not below:
        yield before
    for action in below:
        for name, one in action.choices.items():
            yield from commands(one, f"{before} {name}".strip())


@pytest.mark.slow  # it collects in a process of its own
@pytest.mark.parametrize(("row", "tests"), rows_of_the_readme().items())
def test_each_row_of_the_readmes_table_names_a_test_that_make_test_runs(
    row: str, tests: list[str], running: set[str]
) -> None:
    """As the title of a link in the row: `(integration/test_file.py "test_name")`."""
    assert tests, f'the README\'s row {row!r} names no test; add `[test](integration/test_file.py "test_name")`'
    assert set(tests) <= running


def test_the_readme_has_its_table() -> None:
    assert len(rows_of_the_readme()) >= 9


def test_each_command_is_run_on_real_servers() -> None:
    """A new command comes with such a test."""
    there = set(commands(parser()))
    assert {"without a test": there - set(COMMANDS), "no command": set(COMMANDS) - there} == {
        "without a test": set(), "no command": set(),
    }  # fmt: skip


@pytest.mark.slow
def test_what_must_be_shown_is_run_by_make_test(running: set[str]) -> None:
    assert {what: name for what, name in (COMMANDS | SHOWN).items() if name not in running} == {}


def marks(module: ast.Module) -> list[ast.Attribute | ast.Call]:
    """Return the uses of the marker `thorough`, called or bare."""
    found: dict[tuple[int, int], ast.Attribute | ast.Call] = {}
    for node in ast.walk(module):
        name = node.func if isinstance(node, ast.Call) else node
        if isinstance(name, ast.Attribute) and name.attr == "thorough" and isinstance(node, ast.Attribute | ast.Call):
            found.setdefault((node.lineno, node.col_offset), node)  # the call comes before its name
    return list(found.values())


def reason(mark: ast.Attribute | ast.Call, module: ast.Module) -> str:
    """Return a marker's reason, given in place or by a name of its file; empty if it has none."""
    names = {
        ast.unparse(node.targets[0]): node.value
        for node in module.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
    }
    arguments = mark.args if isinstance(mark, ast.Call) else []
    said = [names.get(one.id) if isinstance(one, ast.Name) else one for one in arguments]
    return str(said[0].value) if len(said) == 1 and isinstance(said[0], ast.Constant) else ""


def test_what_make_test_leaves_out_says_why() -> None:
    """The marker `thorough` has one argument, a sentence."""
    bare = []
    for path in sorted((ROOT / "tests").rglob("*.py")) + sorted((ROOT / "integration").rglob("*.py")):
        if "mark.thorough" in (text := path.read_text()):
            module = ast.parse(text)
            wrong = [mark.lineno for mark in marks(module) if len(reason(mark, module)) < 20]
            bare += [
                f"{path.relative_to(ROOT)}:{line}: thorough needs a reason, a sentence of its own" for line in wrong
            ]
    assert bare == [], "\n".join(bare)
