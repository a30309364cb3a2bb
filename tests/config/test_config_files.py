"""The files of a configuration: what they hold counts once it has stood for two looks, and which files belong to it."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path

import pytest

from inbound.cli.shared.files import ConfigFiles, folders_of, read_manifests
from inbound.config import Loaded, depends_on, load
from inbound.errors import ConfigError

CONFIG = "manifests: {paths: [channels, one.json]}\n"
CHANNEL = """\
apiVersion: messaging.knative.dev/v1beta1
kind: KafkaChannel
metadata: {name: %s, namespace: shop}
spec: {subscribers: [{uid: %s, subscriberUri: "http://a"}]}
"""


@pytest.fixture
def files(tmp_path: Path) -> ConfigFiles:
    """A configuration with a folder of two manifests, and a file, read once."""
    (tmp_path / "inbound.yaml").write_text(CONFIG)
    folder = tmp_path / "channels"
    folder.mkdir()
    (folder / "a.yaml").write_text(CHANNEL % ("a", "u-1"))
    (folder / "b.yml").write_text("kind: Service\n")
    (folder / "notes.txt").write_text("no: [manifest")
    (folder / ".hidden.yaml").write_text("no: [manifest")
    (folder / "..data").mkdir()
    (tmp_path / "one.json").write_text('{"kind": "List", "items": []}')
    one = ConfigFiles(argparse.Namespace(config=tmp_path / "inbound.yaml", set=[]))
    assert names(one.load()) == ["shop.a"]
    return one


def names(loaded: Loaded) -> list[str]:
    """Return the channels of the manifests."""
    return [manifest.name for manifest in loaded.manifests]


def looks(files: ConfigFiles, count: int = 3) -> list[list[str] | str | None]:
    """Return what so many looks say, one after the other."""
    found: list[list[str] | str | None] = []
    for _ in range(count):
        try:
            loaded = files.changed()
        except ConfigError as error:
            found.append(str(error).rpartition("/")[2])
        else:
            found.append(None if loaded is None else names(loaded))
    return found


def test_files_that_stay_the_same_report_nothing(files: ConfigFiles, tmp_path: Path) -> None:
    """Not even when files are rewritten with the same content, or others lie beside them."""
    (tmp_path / "channels" / "a.yaml").write_text(CHANNEL % ("a", "u-1"))
    (tmp_path / "channels" / "more.txt").write_text("x")
    assert looks(files) == [None, None, None]


def test_a_change_is_reported_once_after_two_equal_looks(files: ConfigFiles, tmp_path: Path) -> None:
    """A file that is still being written is not taken for whole."""
    folder = tmp_path / "channels"
    (folder / "c.yaml").write_text(CHANNEL % ("c", "u-2"))
    assert looks(files, 1) == [None]
    (folder / "c.yaml").write_text(CHANNEL % ("d", "u-2"))
    assert looks(files, 4) == [None, ["shop.a", "shop.d"], None, None]
    (folder / "c.yaml").unlink()
    assert looks(files) == [None, ["shop.a"], None]


def test_a_file_that_is_broken_for_a_moment_is_no_news(files: ConfigFiles, tmp_path: Path) -> None:
    """Between two looks that agree it may be anything, even gone."""
    text = (tmp_path / "inbound.yaml").read_text()
    (tmp_path / "inbound.yaml").unlink()
    assert looks(files, 1) == [None]
    (tmp_path / "inbound.yaml").write_text("manifests: {pa")
    assert looks(files, 1) == [None]
    (tmp_path / "inbound.yaml").write_text(text)
    assert looks(files) == [None, None, None]


def test_an_unusable_file_is_reported_once(files: ConfigFiles, tmp_path: Path) -> None:
    """With its place; and the good one again when it is back, for the bad one was never used."""
    (tmp_path / "inbound.yaml").write_text(f"{CONFIG}workers: 3\n")
    refusals = [look if look is None else str(look)[:40] for look in looks(files)]
    assert refusals == [None, "inbound.yaml:2: workers: unknown key; al", None]
    (tmp_path / "inbound.yaml").write_text(CONFIG)
    assert looks(files) == [None, ["shop.a"], None]
    (tmp_path / "one.json").unlink()
    assert looks(files) == [None, "one.json: no such file or folder", None]


def test_a_manifest_that_cannot_be_read_stops_itself(files: ConfigFiles, tmp_path: Path) -> None:
    """Not YAML, not text, a link to nothing; the other files are read, and a mended one is news."""
    folder = tmp_path / "channels"
    (folder / "c.yaml").write_text("kind: [")
    (folder / "d.yaml").write_bytes(b"# \xff")
    (folder / "e.yaml").symlink_to("nowhere")
    files.changed()
    loaded = files.changed()
    assert loaded is not None
    assert (names(loaded), [Path(one.where).name for one in loaded.refused]) == (
        ["shop.a"],
        ["d.yaml", "e.yaml", "c.yaml:1"],
    )
    (folder / "d.yaml").write_text(CHANNEL % ("d", "u-9"))
    assert looks(files) == [None, ["shop.a", "shop.d"], None]


def test_a_path_that_cannot_be_looked_at_is_an_error(tmp_path: Path) -> None:
    """As one behind a folder that is closed to this user."""
    path = "x" * 300
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        read_manifests(tmp_path, [Path(path)])
    assert folders_of(tmp_path / path) == {tmp_path}


def test_what_would_not_end_stops_itself(files: ConfigFiles, tmp_path: Path) -> None:
    """A pipe and a device among the manifests, and a file that is far too long."""
    folder = tmp_path / "channels"
    os.mkfifo(folder / "c.yaml")
    (folder / "d.yaml").symlink_to("/dev/zero")
    with (folder / "e.yaml").open("wb") as long:
        long.truncate(2**40)
    loaded = files.load()
    told = [one.problem.rpartition("/")[2] for one in loaded.refused]
    assert (names(loaded), told) == (
        ["shop.a"],
        [
            "c.yaml: is no file; remove it from the manifests",
            "d.yaml: is no file; remove it from the manifests",
            "e.yaml: has more than 32 MiB; split it",
        ],
    )


def test_what_is_in_place_of_a_secret_holds_up_no_look(tmp_path: Path) -> None:
    """A pipe, a device, a file that fills the disk: they are not read to the end, or not at all."""
    os.mkfifo(tmp_path / "a")
    (tmp_path / "b").symlink_to("/dev/zero")
    with (tmp_path / "c").open("wb") as long:
        long.truncate(2**40)
    config = tmp_path / "inbound.yaml"
    config.write_text(
        "channels: {a: {topics: [t], group: g, processor: {type: dispatch, options: {subscriberUri: 'http://a', token_file: "
        f"'{tmp_path}/{{audience}}'}}}}}}}}\n"
    )
    files = ConfigFiles(argparse.Namespace(config=config, set=[]))
    files.load()
    assert looks(files) == [None, None, None]
    os.utime(tmp_path / "c", (0, 0))
    assert [look is not None for look in looks(files)] == [False, True, False]


def test_a_link_that_points_elsewhere_is_a_change(files: ConfigFiles, tmp_path: Path) -> None:
    """As Kubernetes changes mounted files: the names stay, and so may the times."""
    folder = tmp_path / "channels"
    for version, name in (("..1", "one"), ("..2", "two")):
        (folder / version).mkdir()
        (folder / version / "k.yaml").write_text(CHANNEL % (name, "u-3"))
        os.utime(folder / version / "k.yaml", (0, 0))
    (folder / "..now").symlink_to("..1")
    (folder / "k.yaml").symlink_to("..now/k.yaml")
    assert looks(files) == [None, ["shop.a", "shop.one"], None]
    (folder / "..next").symlink_to("..2")
    os.rename(folder / "..next", folder / "..now")
    assert looks(files) == [None, ["shop.a", "shop.two"], None]


def test_what_is_left_out_is_in_the_log(files: ConfigFiles, caplog: pytest.LogCaptureFixture) -> None:
    """So that a manifest of the wrong kind is not waited for."""
    with caplog.at_level(logging.INFO):
        files.load()
    assert [r.message.rpartition("/")[2] for r in caplog.records] == ["b.yml:1: a Service is ignored"]


# -- files that are named ---------------------------------------------------------------------------------------------


DEPENDENT = """\
kafka: {ssl.truststore.location: /k/ca.pem, security.protocol: SSL}
zookeeper: {tls: {ca_file: /z/ca.pem}}
ingress: {listen: "127.0.0.1:9", token_file: /i/token, tls: {cert: /i/cert.pem, key: /i/key.pem}}
channels:
  posted:
    topics: [a]
    group: g
    subscriptions:
      one: {subscriberUri: "http://a", ca_file: /p/ca.pem, headers: {authorization: {file: /p/token}, x: "y"}}
      two: {subscriberUri: "http://a", token_file: /t/a}
      more: {subscriberUri: "http://a", subscriberAudience: a, token_file: "/tokens/{audience}"}
  sent:
    topics: [a]
    group: h
    processor:
      type: simple
      options: {sinks: [{type: http, url: "https://b", client_cert: /s/cert.pem}, {type: jsonl, path: /s/out.jsonl}]}
  own: {topics: [a], group: i, processor: {type: "m:C", options: {file: /o/what-it-writes}}}
"""


def test_credentials_and_certificates_are_what_it_depends_on() -> None:
    """By who uses them; what is written, or read at each use, is not among them."""
    found = depends_on(load(DEPENDENT, filename="f").config)
    assert {user: [str(path) for path in paths] for user, paths in found.items()} == {
        "kafka": ["/k/ca.pem"],
        "zookeeper": ["/z/ca.pem"],
        "ingress": ["/i/cert.pem", "/i/key.pem"],
        "channels.posted": ["/p/ca.pem", "/p/token", "/t/a", "/tokens"],
        "channels.sent": ["/s/cert.pem"],
    }


def mounted(folder: Path, version: str, **files: str) -> None:
    """Make a version of a mounted folder the one that counts, as the kubelet does."""
    (folder / version).mkdir(parents=True)
    for name, text in files.items():
        (folder / version / name).write_text(text)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    (folder / "..data_tmp").symlink_to(version)
    os.rename(folder / "..data_tmp", folder / "..data")


def test_folders_of_links_are_watched_as_well(tmp_path: Path) -> None:
    """A mounted file changes by a link beside it; and a link to a mounted file by one in another folder."""
    mounted(tmp_path / "mnt", "..1", key="x")
    (tmp_path / "link").symlink_to("mnt/key")
    expected = {tmp_path, tmp_path / "mnt", tmp_path / "mnt" / "..1"}
    assert folders_of(tmp_path / "link") == expected
    assert folders_of(tmp_path / "no" / "such" / "file") == set()
    (tmp_path / "loop").symlink_to("loop")
    assert folders_of(tmp_path / "loop") == {tmp_path}


def test_a_secret_that_is_swapped_is_another_configuration_each_time(tmp_path: Path) -> None:
    """Though not a letter of the file itself changes; what does not belong to it is no change."""
    secret, config = tmp_path / "secret", tmp_path / "inbound.yaml"
    mounted(secret, "..1", ca="one")
    config.write_text(
        f"kafka: {{security.protocol: SSL, ssl.truststore.location: {secret / 'ca'}}}\n"
        "channels: {a: {topics: [t], group: g, processor: {type: simple}}}\n"
    )
    files = ConfigFiles(argparse.Namespace(config=config, set=[]))
    contents, digests = [files.load().contents["kafka"]], []
    for number in range(2, 5):
        mounted(secret, f"..{number}", ca=f"number {number}", other="x")
        looks = [files.changed() for _ in range(3)]
        assert [look is not None for look in looks] == [False, True, False]
        assert looks[1] is not None
        contents.append(looks[1].contents["kafka"])
        digests.append(looks[1].digest)
    assert (len(set(contents)), len(set(digests))) == (4, 3)
    assert secret in files.folders()
    assert "number" not in repr(contents)
