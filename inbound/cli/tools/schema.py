"""`inbound schema` prints the configuration's JSON Schema, or its keys as Markdown."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from inbound.cli.shared.command import Command, argument, flag
from inbound.cli.shared.files import importable
from inbound.config.schema import schema_alternatives, with_units
from inbound.plan.plugins import configuration_schema, find_processor, options_schema

Schema = Mapping[str, Any]


def run(args: argparse.Namespace) -> int:
    """Print the schema. Returns the exit code."""
    if args.processor is None:
        schema = configuration_schema()
    else:
        importable(Path.cwd())
        schema = options_schema(find_processor(args.processor).cls, args.processor)
    print(tables(schema) if args.markdown else json.dumps(with_units(schema), indent=2))
    return 0


def tables(schema: Schema, *, heading: str = "###") -> str:
    """Return a JSON Schema as Markdown, a table of keys per section."""
    made = _Tables(schema.get("$defs", {}), heading)
    return "\n".join(made.of(made.resolved(schema), ""))


class _Tables:
    def __init__(self, definitions: Schema, heading: str) -> None:
        self._definitions = definitions
        self._heading = heading

    def of(self, schema: Schema, path: str, kind: str = "") -> Iterator[str]:
        """Yield the table of an object's values, then those of its sections."""
        sections: list[tuple[str, Schema]] = []
        rows = []
        for key, found in schema.get("properties", {}).items():
            below = self.resolved(found)
            name = f"{path}.{key}".lstrip(".")
            inner = self._mapping_in(below)
            if inner is not None:
                sections.append((name, {**inner, "description": found.get("description", "")}))
            elif self._is_section(below):
                sections.append((name, {**below, **found}))
            if not self._is_section(below) or "items" in below:
                rows.append(self._row(key, below, key in schema.get("required", ())))
        if rows:
            title = f"`{path}`{kind}" if path else "Keys"
            description = f"{schema['description']}\n" if "description" in schema else ""
            yield f"{self._heading} {title}\n{description}"
            yield "| key | takes | default | meaning |\n| --- | --- | --- | --- |\n" + "\n".join(rows) + "\n"
        for name, section in sections:
            yield from self._section(section, name)
        for branch in schema.get("allOf", ()):
            chosen = branch["if"]["properties"]["type"]["const"]
            options = self.resolved(branch["then"]["properties"]["options"])
            yield from self.of(options, f"{path}.options", f" of `type: {chosen}`")

    def _section(self, schema: Schema, path: str) -> Iterator[str]:
        items = self.resolved(schema.get("items", {}))
        if "anyOf" in items or "oneOf" in schema:
            for variant in map(self.resolved, schema_alternatives(dict(items or schema))):
                kind = variant.get("properties", {}).get("type", {})
                if kind:
                    name = kind.get("const", "module:Class")
                    yield from self.of(variant, f"{path}[]" if items else path, f" with `type: {name}`")
        elif "patternProperties" in schema:
            (below,) = schema["patternProperties"].values()
            yield from self.of(self.resolved(below), f"{path}.<name>")
        else:
            yield from self.of(schema, path)

    def _mapping_in(self, schema: Schema) -> Schema | None:
        """Return the mapping with keys among the alternatives of a schema."""
        if "properties" in schema or "items" in schema:
            return None
        found = [self.resolved(part) for part in schema.get("anyOf", ())]
        found += [inner for part in found if (inner := self._mapping_in(part)) is not None]
        return next((part for part in found if "properties" in part), None)

    def _is_section(self, schema: Schema) -> bool:
        if "properties" in schema:
            return True
        inner = [*schema.get("oneOf", ()), *schema.get("patternProperties", {}).values()]
        inner += self.resolved(schema.get("items", {})).get("anyOf", ())
        return any("properties" in self.resolved(part) for part in inner)

    def resolved(self, schema: Schema) -> Schema:
        """Return the target of a reference; any other schema unchanged."""
        reference = schema.get("$ref")
        return self._definitions[reference.rsplit("/", 1)[1]] if reference else schema

    def _row(self, key: str, schema: Schema, required: bool) -> str:
        default = "required" if required else ""
        if not required and "default" in schema:
            default = f"`{_plain(schema['default'])}`"
        takes, meaning = self._takes(schema), schema.get("description", "")
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in (f"`{key}`", takes, default, meaning)) + " |"

    def _takes(self, schema: Schema) -> str:
        schema = self.resolved(schema)
        if "const" in schema:
            return f"`{schema['const']}`"
        if "enum" in schema:
            return ", ".join(f"`{_plain(choice)}`" for choice in schema["enum"])
        if "$comment" in schema:
            return ", ".join(filter(None, (schema["title"], schema["$comment"])))
        if "anyOf" in schema and "type" not in schema:
            return " or ".join(self._takes(part) for part in schema["anyOf"])
        kind = schema.get("type")
        kind = kind[0] if isinstance(kind, list) else kind  # the others are for machines
        if kind in ("integer", "number"):
            return f"{'whole number' if kind == 'integer' else kind}{_bounds(schema)}"
        if kind == "array":
            items = self.resolved(schema.get("items", {}))
            return "list, see below" if self._is_section(schema) else f"list of {self._takes(items)}"
        words = {"string": "text", "boolean": "`true` or `false`", "object": "mapping", "null": "`null`"}
        return words.get(str(kind), "anything")


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most in (None, 2**31 - 1):
        return "" if least is None else f", at least {least}"
    return f", at most {most}" if least is None else f", {least} to {most}"


def _plain(value: Any) -> str:
    """Return a value as YAML on one line."""
    return value if isinstance(value, str) and value else json.dumps(value)


COMMAND = Command(
    "schema",
    "print the JSON Schema of the configuration",
    run,
    "Print the JSON Schema of the configuration. Editors complete and check inbound.yaml with it: with the YAML language server "
    "put `# yaml-language-server: $schema=inbound.schema.json` into the file's first line.",
    examples=(
        "inbound schema > inbound.schema.json",
        "inbound schema --processor simple",
        "inbound schema --markdown",
    ),
    arguments=(
        argument(
            "--processor",
            metavar="NAME",
            help="the options of one processor only: its name, or module:Class (found in this folder, or installed)",
        ),
        flag("--markdown", "tables of all keys, instead of JSON"),
    ),
)
