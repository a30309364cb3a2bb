"""Renew docs/cli.md from the parsers of the command line (`make docs`)."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from inbound.cli.main import parser
from inbound.cli.shared.command import CONFIG, TITLE
from scripts.made_tables import DOCS, with_tables

DOCUMENT = DOCS / "cli.md"


def renewed(text: str) -> str:
    """Return the document with the commands as they are now. Raises ValueError: the marks around them are missing."""
    return with_tables(DOCUMENT, text, "\n".join(lines()))


def lines() -> Iterator[str]:
    """Yield the lines of all commands, after the options that most of them have."""
    yield from (
        "## Options of a configuration",
        "",
        "Where a command says that it reads a configuration:",
        "",
        *_table("option", _common()),
        "",
    )
    common = {_form(action) for action in _common()}
    for depth, name, command in commands(parser()):
        yield from (f"{'#' * (depth + 1)} {name}", "")
        yield from (_escaped(command.description or ""), "")
        for title, actions in _groups(command):
            kept = [action for action in actions if _form(action) not in common]
            if len(kept) < len(actions):
                yield from ("It reads [a configuration](#options-of-a-configuration).", "")
            if kept:
                yield from (*_table(title, kept), "")
        if examples := _examples(command):
            yield from ("Examples:", *(f"- `{example}`" for example in examples), "")


def commands(
    top: argparse.ArgumentParser, name: str = "", depth: int = 1
) -> Iterator[tuple[int, str, argparse.ArgumentParser]]:
    """Yield depth, name and parser of each command below `top`, each before its own commands, in their order."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part, command in action.choices.items():
                whole = f"{name} {part}".strip()
                yield depth, whole, command
                yield from commands(command, whole, depth + 1)


def _common() -> list[argparse.Action]:
    """Return the options that name a configuration."""
    made = argparse.ArgumentParser(add_help=False)
    for add in CONFIG:
        add(made)
    return made._actions


def _table(title: str, actions: list[argparse.Action]) -> list[str]:
    return [f"| {title} | |", "| --- | --- |", *(f"| {_form(one)} | {_escaped(_help(one))} |" for one in actions)]


def _groups(command: argparse.ArgumentParser) -> Iterator[tuple[str, list[argparse.Action]]]:
    for group in command._action_groups:
        actions = [
            action
            for action in group._group_actions
            if not isinstance(action, (argparse._SubParsersAction, argparse._HelpAction))
            and action.help != argparse.SUPPRESS
        ]
        if actions:
            yield (
                {"positional arguments": "argument"}.get(group.title or "", group.title or "option").removesuffix("s"),
                actions,
            )


def _form(action: argparse.Action) -> str:
    """Return how it is written: `-c FILE`, `--config FILE`."""
    value = _value(action)
    if not action.option_strings:
        return f"`{value}`"
    return ", ".join(f"`{f'{option} {value}'.strip()}`" for option in action.option_strings)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    name = action.metavar or (
        action.option_strings[0].lstrip("-").upper() if action.option_strings else action.dest.upper()
    )
    text = "|".join(map(str, action.choices)) if action.choices is not None and action.metavar is None else str(name)
    return {"?": f"[{text}]", "*": f"[{text} ...]", "+": f"{text} ..."}.get(str(action.nargs), text)


def _help(action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": "inbound"}
    return f"{text}. Required" if action.required and action.option_strings else text


def _examples(command: argparse.ArgumentParser) -> list[str]:
    """Return the command lines at the end of its help."""
    epilog = command.epilog or ""
    return [line.strip() for line in epilog.removeprefix(TITLE).splitlines() if line.strip()]


def _escaped(text: str) -> str:
    """Return a text of the help for Markdown: bars do not end a cell, and <...> is no HTML."""
    return re.sub(r"([|<>*])", r"\\\1", " ".join(text.split()))


def main() -> None:
    DOCUMENT.write_text(renewed(DOCUMENT.read_text()))


if __name__ == "__main__":
    main()
