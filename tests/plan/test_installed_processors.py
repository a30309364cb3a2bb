"""Processors that installed distributions offer by name: real metadata on the import path, as pip leaves it there."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from inbound.cli.main import main

CONFIG = "channels: {shop: {topics: [orders], group: g, processor: {type: %s, options: {%s}}}}\n"
SOURCE = '''
from pydantic import BaseModel

from inbound import Batch, BatchEventProcessor, BatchResponse


class Options(BaseModel):
    limit: int = 3


class Orders(BatchEventProcessor):
    Options = Options

    def on_next_batch(self, batch: Batch) -> BatchResponse:
        return BatchResponse.advance()


class Returns(Orders):
    """Another one."""
'''


def install(site: Path, distribution: str, *entries: str, module: str = "") -> None:
    """Put a distribution of version 1.2 into `site`, which offers `entries` such as `orders = shop:Orders`."""
    info = site / f"{distribution.replace('-', '_')}-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("\n".join(("[inbound.processors]", *entries)) + "\n")
    if module:
        (site / f"{module}.py").write_text(SOURCE)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the import path; what is imported from it is forgotten after the test."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return folder


def check(site: Path, capsys: pytest.CaptureFixture[str], name: str, options: str = "") -> tuple[int, str]:
    """Run `inbound check` on a channel with the processor `name`; return exit code and output."""
    config = site.parent / "inbound.yaml"
    config.write_text(CONFIG % (name, options))
    code = main(["check", "-c", str(config)])
    out = capsys.readouterr()
    return code, (out.err or out.out).replace(f"{site.parent}/", "")


def test_a_processor_is_used_by_the_name_that_its_distribution_gives_it(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`check` says which class that is, and whose; its own model checks its options and gives their schema."""
    install(site, "shop-processors", "orders = shop_made:Orders", module="shop_made")

    assert check(site, capsys, "orders") == (
        0,
        "channel shop: group g reads orders with orders (shop_made:Orders of shop-processors 1.2), coordinator dynamic\n"
        "inbound.yaml: good\n",
    )
    assert check(site, capsys, "orders", "limit: many") == (
        2,
        "error: inbound.yaml:1: channels.shop.processor.options.limit: need a whole number, got 'many'\n",
    )
    assert main(["schema", "--processor", "orders"]) == 0
    assert json.loads(capsys.readouterr().out)["properties"] == {"limit": {"default": 3, "type": "integer"}}

    install(site, "shop-processors-new", "orders = shop_made:Orders")  # as after a distribution was renamed
    assert check(site, capsys, "orders")[0] == 0


def test_two_distributions_that_mean_different_classes_by_one_name_are_reported(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which of the two would win is not left to the order of folders."""
    install(site, "shop-processors", "orders = shop_made:Orders", module="shop_made")
    install(site, "other-shop", "orders = other_made:Orders", "returns = other_made:Returns", module="other_made")

    assert check(site, capsys, "orders") == (
        2,
        "error: inbound.yaml:1: channels.shop.processor.type: 'orders' is offered by other-shop 1.2 (other_made:Orders) and "
        "shop-processors 1.2 (shop_made:Orders); write the one that you mean as module:Class, or uninstall the other\n",
    )
    assert check(site, capsys, "returns")[0] == 0
    assert check(site, capsys, '"other_made:Orders"')[0] == 0


def test_inbounds_own_names_cannot_be_taken(site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A distribution that calls something `simple` changes no configuration."""
    install(site, "shop-processors", "simple = shop_made:Orders", module="shop_made")

    code, said = check(site, capsys, "simple", "sinks: [log]")

    assert (code, "inbound.processors.simple:SimpleProcessor, part of inbound" in said) == (0, True)


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (
            "orders = shop_gone:Orders",
            "'orders' of shop-processors 1.2: no module 'shop_gone'; install shop-processors 1.2 again",
        ),
        (
            "orders = shop_made:Order",
            "'orders' of shop-processors 1.2: shop_made has no 'Order'; its path is site/shop_made.py",
        ),
        (
            "orders = shop_made",
            "'orders' of shop-processors 1.2 is 'shop_made', which names no class; its entry point must say module:Class",
        ),
        (
            "orders = shop_failing:Orders",
            "'orders' of shop-processors 1.2: shop_failing failed when imported: OSError: no licence (site/shop_failing.py:1)",
        ),
        (
            "ordres = shop_made:Orders",
            "no processor is called 'orders'; did you mean ordres? use one of dispatch, ordres, simple, or module:Class",
        ),
    ],
)
def test_an_offer_that_cannot_be_used_is_named_with_its_distribution(
    entry: str, problem: str, site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For the fault is there, and not in the configuration."""
    install(site, "shop-processors", entry, module="shop_made")
    (site / "shop_failing.py").write_text("raise OSError('no licence')")

    assert check(site, capsys, "orders") == (2, f"error: inbound.yaml:1: channels.shop.processor.type: {problem}\n")
