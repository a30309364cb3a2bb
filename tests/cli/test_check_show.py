"""`inbound check --show`: every value in effect and where it comes from, as YAML that can be used; and no secret."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
import yaml

from inbound.cli.main import main
from inbound.config import load

CONFIG = """\
kafka: {bootstrap.servers: "a:9092"}
channels:
  web-shop.eu:
    topics: [orders]
    group: g
    workers: 2
    processor:
      type: "my_shop:Shop"
      options: {url: "https://u:hunter2@h/p?x=1&api_key=hunter2", limit: 5, inner: {pin: hunter2}, auth: Bearer hunter22}
"""
PLUGIN = """
from pydantic import BaseModel, ConfigDict, SecretStr

from inbound import Batch, BatchEventProcessor, BatchResponse


class Inner(BaseModel):
    pin: SecretStr
    tries: int = 3


class Options(BaseModel):
    model_config = ConfigDict(extra="forbid")
    url: str
    limit: int = 1
    sure: bool = True
    auth: str = ""
    token: str = ""
    inner: Inner


class Shop(BatchEventProcessor):
    Options = Options

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a configuration and its plugin."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    Path("inbound.yaml").write_text(CONFIG)
    Path("my_shop.py").write_text(PLUGIN)
    return tmp_path


def show(capsys: pytest.CaptureFixture[str], *flags: str) -> str:
    """Return what `check --show` prints."""
    assert main(["check", "--show", *flags]) == 0
    return capsys.readouterr().out


def origins(shown: str) -> dict[str, tuple[str, str]]:
    """Return value and origin by key, of the lines that have both; the first of each key."""
    found = re.findall(r"(?m)^ *([a-z_.]+): (.*?) +# (.+)$", shown)
    return {key: (value, origin) for key, value, origin in reversed(found)}


def test_each_value_says_whether_file_variable_flag_or_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The origin is exact: line, name of the variable; a flag goes before the environment, and that before the file."""
    monkeypatch.setenv("INBOUND__CHANNELS__WEB_SHOP_EU__WORKERS", "8")
    monkeypatch.setenv("INBOUND__CHANNELS__WEB_SHOP_EU__TOPICS", "orders,returns")
    monkeypatch.setenv("INBOUND__CHANNELS__WEB_SHOP_EU__GROUP", "h")
    monkeypatch.setenv("INBOUND__KAFKA__FETCH_MAX_WAIT_MS", "250")

    shown = show(capsys, "--set", "channels.web-shop.eu.group=i")
    found = origins(shown)

    assert {
        key: found[key] for key in ("workers", "topics", "group", "limit", "sure", "idle_time", "bootstrap.servers")
    } == {
        "workers": ("8", "environment INBOUND__CHANNELS__WEB_SHOP_EU__WORKERS"),
        "topics": ("[orders, returns]", "environment INBOUND__CHANNELS__WEB_SHOP_EU__TOPICS"),
        "group": ("i", "flag"),
        "limit": ("5", "inbound.yaml:9"),
        "sure": ("true", "default"),
        "idle_time": ("1m", "default"),
        "bootstrap.servers": ("a:9092", "inbound.yaml:1"),
    }
    assert found["fetch.max.wait.ms"] == ("250", "environment INBOUND__KAFKA__FETCH_MAX_WAIT_MS")
    lines = [line for line in shown.splitlines() if " # " in line]
    columns = {line.rindex(" # ") for line in lines if line.rindex(" # ") <= 63}  # but for the longest values
    assert (len(columns), len(lines) > 30) == (1, True)


def test_all_of_it_is_yaml_that_loads_with_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    """What is shown can be kept as a file; only what is hidden must be put in again."""
    shown = show(capsys)

    again = load(shown.replace("'***'", "hunter2"), filename="again.yaml").config
    first = load(CONFIG, filename="inbound.yaml").config
    assert (again.zookeeper, again.ledger, again.kafka) == (first.zookeeper, first.ledger, first.kafka)
    assert again.channels["web-shop.eu"].reader == first.channels["web-shop.eu"].reader
    assert yaml.safe_load(shown)["channels"]["web-shop.eu"]["processor"]["options"]["inner"] == {
        "pin": "***",
        "tries": 3,
    }


def test_no_secret_is_shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by its name, nor by its type, nor inside a URL or header, wherever it came from."""
    monkeypatch.setenv("INBOUND__CHANNELS__WEB_SHOP_EU__PROCESSOR__OPTIONS__TOKEN", "hunter2")

    shown = show(capsys, "--set", "channels.web-shop.eu.processor.options.inner.pin=hunter2")

    assert "hunter2" not in shown
    assert "https://***@h/p?x=1&api_key=***" in shown
    assert "auth: Bearer ***" in shown


def test_check_says_where_the_plugin_came_from(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    """The file, for a class named as module:Class."""
    main(["check"])

    assert capsys.readouterr().out == (
        f"channel web-shop.eu: group g reads orders with my_shop:Shop ({folder}/my_shop.py), coordinator dynamic\n"
        "inbound.yaml: good\n"
    )
