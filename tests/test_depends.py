"""Which files belong to a configuration without standing in it, and which folders say when they change."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from inbound.cli.files import ConfigFiles, folders_of
from inbound.config import depends_on, load

CONFIG = """\
kafka: {ssl.truststore.location: /k/ca.pem, security.protocol: SSL}
zookeeper: {tls: {ca_file: /z/ca.pem}}
ingress: {listen: "127.0.0.1:9", token_file: /i/token, tls: {cert: /i/cert.pem, key: /i/key.pem}}
channels:
  posted:
    topics: [a]
    group: g
    subscriptions:
      one: {subscriberUri: "http://a", ca_file: /p/ca.pem, headers: {authorization: {file: /p/token}, x: "y"}}
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
    found = depends_on(load(CONFIG, filename="f").config)
    assert {user: [str(path) for path in paths] for user, paths in found.items()} == {
        "kafka": ["/k/ca.pem"],
        "zookeeper": ["/z/ca.pem"],
        "ingress": ["/i/cert.pem", "/i/key.pem"],
        "channels.posted": ["/p/ca.pem", "/p/token"],
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
