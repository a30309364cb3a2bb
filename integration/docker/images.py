"""The images: Java with the servers' jars, Python, and on top of that inbound as it stands in this checkout."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from docker.errors import APIError, ImageNotFound
from packaging.tags import parse_tag, sys_tags

from inbound.cli.shared.files import jar_cache, java_command
from inbound.embedded.jars import Jars, check_java, fetch_jars
from inbound.spark.session import make_wheel
from integration.docker.engine import CONTENT, NAME
from integration.docker.rootfs import RootFs, with_java, with_python
from integration.repository.installing import closure

ROOT = Path(__file__).resolve().parents[2]
#: What inbound's wheel is made of.
_SOURCES = (
    "inbound",
    "config",
    "controller",
    "coordinators",
    "processors",
    "examples/delays",
    "setup.cfg",
    "pyproject.toml",
)
#: What the Dockerfile takes besides.
_CONTEXT = ("deploy", "requirements", ".dockerignore")
#: Of setup.cfg: small ones that are installed wherever these tests run.
EXTRAS = ("requests", "tracing", "zookeeper-sasl")


@dataclass(frozen=True, slots=True)
class Images:
    """What containers are made of."""

    servers: str  # Java, and the jars under the names that they have here
    java: str  # the program in it
    jars: Jars
    replica: str


def made(client: Any, folder: Path) -> Images:
    """Return the images, making those that the engine does not have; what is needed for that goes to `folder`."""
    jars = fetch_jars(jar_cache())
    root, java = with_java(check_java(java_command()), (jars.kafka, jars.zookeeper))
    servers = _imported(client, folder, "servers", root, {})
    root, programs = with_python()
    path = f"{programs}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"
    python = _imported(client, folder, "python", root, {"PATH": path, "LANG": "C.UTF-8"})
    replica = _replica(client, folder, python)
    for name, tag in (("replica", replica), ("python", python), ("servers", servers)):  # what is made of one before it
        _forget_others(client, name, tag)
    return Images(servers, java, jars, replica)


def _imported(client: Any, folder: Path, name: str, root: RootFs, environment: dict[str, str]) -> str:
    """Return an image of one layer."""
    key = root.key()
    tag = f"inbound-tests/{name}:{key}"
    if _has(client, tag):
        return tag
    archive = folder / f"{name}.tar"
    root.write(archive)
    changes = [f"ENV {key}={value}" for key, value in environment.items()]
    changes += [f"LABEL {key}={value}" for key, value in {CONTENT: key, NAME: name}.items()]
    client.api.import_image(str(archive), repository=f"inbound-tests/{name}", tag=key, changes=changes)
    archive.unlink()
    assert _has(client, tag), f"the engine did not take {archive}, an image of {name}"
    return tag


def _has(client: Any, tag: str) -> bool:
    try:
        client.images.get(tag)
    except ImageNotFound:
        return False
    return True


def _forget_others(client: Any, name: str, tag: str) -> None:
    """Remove the images of this name that were made of something else, and what a build's first stages have left."""
    for image in client.images.list(filters={"label": f"{NAME}={name}"}):
        if tag not in image.tags:
            with suppress(APIError):  # a container uses it
                client.images.remove(image.tags[0] if image.tags else image.id)


# -- inbound -------------------------------------------------------------------------------------------------------------


def _replica(client: Any, folder: Path, base: str) -> str:
    """Build `deploy/Dockerfile` from wheels: of this checkout, and of what it needs as it is installed here."""
    needed = [one for one in closure([f"inbound-kafka[{','.join(EXTRAS)}]"]) if one.name != "inbound-kafka"]
    key = _content(base, needed)
    tag = f"inbound-tests/replica:{key}"
    if _has(client, tag):
        return tag
    context = folder / "context"
    wheelhouse = context / "wheelhouse"
    wheelhouse.mkdir(parents=True)
    for path in _CONTEXT:
        copy = shutil.copytree if (ROOT / path).is_dir() else shutil.copy
        copy(ROOT / path, context / path)
    built = folder / "wheel"
    built.mkdir()
    shutil.copy(make_wheel(built), wheelhouse)
    for one in needed:
        _packed(one, wheelhouse)
    # Without a network: a requirement that is not among the wheels fails the build.
    client.images.build(
        path=str(context), dockerfile="deploy/Dockerfile", tag=tag, buildargs={"BASE": base, "EXTRAS": ",".join(EXTRAS)},
        network_mode="none", rm=True, forcerm=True, labels={CONTENT: key, NAME: "replica"},
    )  # fmt: skip
    shutil.rmtree(context)
    return tag


def _content(base: str, needed: Iterable[metadata.Distribution]) -> str:
    digest = hashlib.sha256(f"{base} {EXTRAS}\n".encode())
    for one in needed:
        digest.update(f"{one.name}=={one.version}\n".encode())
    files = {file for source in (*_SOURCES, *_CONTEXT) for file in [ROOT / source, *(ROOT / source).rglob("*")]}
    for path in sorted(filter(_is_source, files)):
        digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _is_source(file: Path) -> bool:
    return file.is_file() and "__pycache__" not in file.parts


def _packed(installed: metadata.Distribution, folder: Path) -> None:
    """Make the wheel again that a distribution was installed from: what its record lists."""
    kept = [
        file
        for file in installed.files or ()
        if ".." not in file.parts and "__pycache__" not in file.parts and file.name not in ("RECORD", "INSTALLER")
    ]
    about = next(file.parts[0] for file in kept if file.parts[0].endswith(".dist-info"))
    lines = (installed.read_text("WHEEL") or "").splitlines()
    tags = [one for line in lines if line.startswith("Tag: ") for one in parse_tag(line.removeprefix("Tag: "))]
    tag = next(one for one in sys_tags() if one in tags)
    name = about.removesuffix(".dist-info")
    with zipfile.ZipFile(folder / f"{name}-{tag}.whl", "w") as wheel:
        for file in kept:
            wheel.write(str(file.locate()), str(file))
        wheel.writestr(f"{about}/RECORD", "".join(f"{file},,\n" for file in kept) + f"{about}/RECORD,,\n")
