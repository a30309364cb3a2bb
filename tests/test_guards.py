"""What the product never does: run data as code, start a shell, trust whoever answers."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_layers import modules

#: Modules whose `load` runs what the data says.
RUN_DATA = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "marshal", "shelve", "jsonpickle"}
#: Calls, by their last two names (or one), and why not.
NEVER = {
    "eval": "runs text as code",
    "exec": "runs text as code",
    "os.system": "starts a shell",
    "os.popen": "starts a shell",
    "subprocess.getoutput": "starts a shell",
    "subprocess.getstatusoutput": "starts a shell",
    "tempfile.mktemp": "gives a name that somebody else can take",
    "yaml.load": "makes any object that the YAML names; use a SafeLoader",
    "yaml.load_all": "makes any object that the YAML names; use a SafeLoader",
    "yaml.unsafe_load": "makes any object that the YAML names",
    "yaml.full_load": "makes more objects than needed",
    "ssl._create_unverified_context": "trusts whoever answers",
    "tarfile.extractall": "writes where the archive says",
}
#: Names that switch a check of certificates off.
UNVERIFIED = {"CERT_NONE"}
#: Where one of them stands all the same, and why that is no danger.
ALLOWED = {
    ("inbound.embedded.zookeeper", "CERT_NONE"): "sees whether our own server on loopback is up, and tells it nothing",
    ("inbound.embedded.zookeeper", "check_hostname"): "as above",
    ("inbound.spark.ledger_topic", "pickle"): "Spark hands what our own driver made to its executors in this form",
    ("inbound.spark.replay.task", "pickle"): "Spark hands what our own driver made to its executors in this form",
}


def problems_of(module: str, source: str) -> Iterator[tuple[str, str]]:
    """Yield what `source` does that the product never does: what, and where and why not."""
    for node in ast.walk(ast.parse(source)):
        where = f"{module}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            yield from (
                (n.split(".")[0], f"{where}: data can make it run code") for n in names if n.split(".")[0] in RUN_DATA
            )
        elif isinstance(node, ast.Call):
            name = _name(node.func)
            if name in NEVER and not (name.startswith("yaml.load") and _loads_safely(node)):
                yield name, f"{where}: {NEVER[name]}"
            for keyword in node.keywords:
                value = keyword.value.value if isinstance(keyword.value, ast.Constant) else None
                if keyword.arg == "shell" and value is not False:
                    yield "shell", f"{where}: starts a shell"
                if keyword.arg in ("verify", "check_hostname") and value is False:
                    yield keyword.arg, f"{where}: trusts whoever answers"
        elif isinstance(node, ast.Attribute | ast.Name) and _name(node).split(".")[-1] in UNVERIFIED:
            yield _name(node).split(".")[-1], f"{where}: trusts whoever answers"
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and node.value.value is False:
            for target in node.targets:
                if isinstance(target, ast.Attribute) and target.attr == "check_hostname":
                    yield "check_hostname", f"{where}: trusts whoever answers"


def _loads_safely(call: ast.Call) -> bool:
    return any("Safe" in _name(given) for given in [*call.args[1:], *(keyword.value for keyword in call.keywords)])


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        before = _name(node.value)
        return f"{before.split('.')[-1]}.{node.attr}" if before else node.attr
    return node.id if isinstance(node, ast.Name) else ""


@pytest.mark.slow
def test_the_product_does_nothing_of_it() -> None:
    """But for what is allowed above, with its reason."""
    found = [(name, what, why) for name, path in modules() for what, why in problems_of(name, path.read_text())]
    assert [f"{why} ({what})" for name, what, why in found if (name, what) not in ALLOWED] == []
    assert {(name, what) for name, what, _ in found} == set(ALLOWED), "what is not done any more need not be allowed"


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("import pickle", "pickle"),
        ("from marshal import loads", "marshal"),
        ("def f(x):\n    return eval(x)", "eval"),
        ("import os\nos.system('ls')", "os.system"),
        ("import yaml\nyaml.load(x, yaml.Loader)", "yaml.load"),
        ("import yaml\nyaml.load(x)", "yaml.load"),
        ("import subprocess\nsubprocess.run('ls', shell=True)", "shell"),
        ("import subprocess\nsubprocess.run('ls', shell=flag)", "shell"),
        ("requests.get(url, verify=False)", "verify"),
        ("context.verify_mode = ssl.CERT_NONE", "CERT_NONE"),
        ("context.check_hostname = False", "check_hostname"),
        ("tempfile.mktemp()", "tempfile.mktemp"),
    ],
)
def test_each_of_them_is_found(source: str, what: str) -> None:
    """The scan above can fail."""
    assert [found for found, _ in problems_of("inbound.x", source)] == [what]


@pytest.mark.parametrize(
    "source",
    [
        "yaml.load(x, Loader=SafeLoader)",
        "yaml.load(text, _SafeLoader)",
        "yaml.safe_load(x)",
        "subprocess.run(['ls'], shell=False)",
        "json.loads(x)",
        "pattern.evaluate(x)",
    ],
)
def test_what_is_safe_is_let_through(source: str) -> None:
    """So that nobody has to allow what is no danger."""
    assert list(problems_of("inbound.x", source)) == []
