"""What the product never does: run data as code, start a shell, trust an unknown server.

Nearly all of it ruff's rules S find in `make check`, with the few places that are allowed in pyproject.toml.
"""

from __future__ import annotations

import re
import subprocess
import sys

from scripts.rooms import ROOT, modules

#: One line each, and the rule that finds it.
NEVER = {
    "pickle.loads(x)": "S301",
    "shelve.open(x)": "S301",
    "marshal.loads(x)": "S302",
    "eval(x)": "S307",
    "exec(x)": "S102",
    "os.system(x)": "S605",
    "os.popen(x)": "S605",
    "subprocess.getoutput(x)": "S605",
    "subprocess.run(x, shell=True)": "S602",
    "tempfile.mktemp()": "S306",
    "yaml.load(x)": "S506",
    "requests.get(url, verify=False, timeout=1)": "S501",
    "ssl._create_unverified_context()": "S323",
    "archive.extractall(x)": "S202",
}
#: For what ruff has no rule: a certificate, or its name, that is not checked, and further ways to run data as code.
UNSEEN = re.compile(
    r"\bCERT_NONE\b|check_hostname *= *False|\b(cloudpickle|dill|jsonpickle)\b|yaml\.(full|unsafe)_load|yaml\.load_all"
)


def test_ruff_finds_each_of_them() -> None:
    """As it is configured for the product."""
    used = ("os", "pickle", "marshal", "requests", "shelve", "ssl", "subprocess", "tarfile", "tempfile", "yaml")
    source = "\n".join((f"import {', '.join(used)}", "archive = tarfile.open(x)", *NEVER))
    command = [
        sys.executable,
        "-m",
        "ruff",
        "check",
        "--output-format",
        "concise",
        "--stdin-filename",
        "inbound/x.py",
        "-",
    ]
    ran = subprocess.run(command, cwd=ROOT, input=source, capture_output=True, text=True, timeout=100)
    found = set(re.findall(r"(?m)^\S+?:(\d+):\d+: (S\d+)", ran.stdout))
    assert {(str(number), rule) for number, rule in enumerate(NEVER.values(), start=3)} - found == set(), ran.stdout


def test_what_ruff_does_not_see_stands_in_one_place_alone() -> None:
    """That checks no certificate: it sees whether our own server on loopback is up, and tells it nothing."""
    found = {name for name, path in modules().items() if UNSEEN.search(path.read_text())}
    assert found == {"inbound.embedded.zookeeper"}
