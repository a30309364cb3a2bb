"""`inbound schema`: the JSON Schema of the configuration, for editors; or its keys as Markdown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from inbound.cli.files import importable
from inbound.cli.help import examples
from inbound.cli.schema_tables import tables
from inbound.config.json_schema import with_units
from inbound.json_schema import configuration_schema, options_schema
from inbound.plugins import find_processor


def add_parser(commands: Any) -> None:
    """Add the command to the command line."""
    parser = commands.add_parser(
        "schema",
        help="print the JSON Schema of the configuration",
        description="Print the JSON Schema of the configuration. Editors complete and check inbound.yaml by it: with the YAML "
        "language server put `# yaml-language-server: $schema=inbound.schema.json` into the file's first line.",
        **examples(
            "inbound schema > inbound.schema.json",
            "inbound schema --processor simple",
            "inbound schema --markdown",
        ),
    )
    parser.add_argument(
        "--processor",
        metavar="NAME",
        help="the options of one processor only: its name, or module:Class (found in this folder, or installed)",
    )
    parser.add_argument("--markdown", action="store_true", help="tables of all keys, instead of JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the schema. Returns the exit code."""
    if args.processor is None:
        schema = configuration_schema()
    else:
        importable(Path.cwd())
        schema = options_schema(find_processor(args.processor).cls, args.processor)
    print(tables(schema) if args.markdown else json.dumps(with_units(schema), indent=2))
    return 0
