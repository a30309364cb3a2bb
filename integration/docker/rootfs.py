"""File systems of images, made of this machine's own files: no registry is asked, and nothing is fetched.

Files of an image have the names that they have here, so that a command line that works here works there.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

#: Goes into every key: raise it when something else is put into an image for the same files.
_FORMAT = "1"
#: What a Dockerfile's RUN lines, and people who look into a container, find.
PROGRAMS = (
    "sh", "cat", "chmod", "chown", "cp", "date", "env", "groupadd", "head", "hostname", "id", "install", "ln", "ls", "mkdir",
    "mktemp", "mv", "rm", "sleep", "test", "touch", "true", "uname", "useradd",
)  # fmt: skip
#: Of Python's library: what only its own tests, its own build and windows need. `site-packages` is this machine's.
_NOT_PYTHON = ("site-packages", "dist-packages", "test", "tests", "idlelib", "tkinter", "turtledemo", "lib2to3")
_NOT_JAVA = ("jmods", "include", "man", "docs", "demo", "src.zip", "lib/src.zip", "legal")
#: Shared libraries that draw, print and play: they would bring a desktop's libraries along.
_DESKTOP = re.compile(r"awt|splashscreen|jsound|font|jawt|lcms|javajpeg|mlib|_tkinter")
#: What the C library opens by name while a program runs, and what every wheel of a compiled package may count on.
_EXPECTED = (
    "libnss_files.so.2", "libnss_dns.so.2", "libresolv.so.2", "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6", "libm.so.6",
    "librt.so.1", "libdl.so.2", "libpthread.so.0", "libutil.so.1",
)  # fmt: skip
_FOUND = re.compile(r"(?:=> |^\s+)(/\S+) \(0x", re.MULTILINE)
_ASK_PYTHON = """
import json, sys, sysconfig
where = {"stdlib": sysconfig.get_path("stdlib"), "dynload": sysconfig.get_config_var("DESTSHARED")}
print(json.dumps({**where, "program": sys.executable}))
"""


class RootFs:
    """What an image is to hold. Not for threads."""

    def __init__(self) -> None:
        """Begin with what every program expects: users, where names are looked up, a folder for what is temporary."""
        self._files: dict[str, Path] = {}  # where it is to stand: where it stands here
        self._links: dict[str, str] = {}
        self._texts: dict[str, tuple[str, int]] = {
            "/etc/passwd": ("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/bin/false\n", 0o644),
            "/etc/group": ("root:x:0:\nnogroup:x:65534:\n", 0o644),
            "/etc/nsswitch.conf": ("passwd: files\ngroup: files\nhosts: files dns\n", 0o644),
        }  # fmt: skip
        for name in PROGRAMS:
            self.program(name)
        for name in _EXPECTED:
            if place := _cached_library(name):
                self.file(place)

    def file(self, path: Path, target: str | None = None) -> None:
        """Put a file at the place that it has here, or at `target`; a link is put as what it points to."""
        self._files[os.path.normpath(target or path)] = path.resolve()

    def text(self, target: str, text: str, mode: int = 0o644) -> None:
        """Put a file with this text."""
        self._texts[target] = (text, mode)

    def link(self, target: str, to: str) -> None:
        """Put a symbolic link."""
        self._links[target] = to

    def program(self, name: str) -> None:
        """Put a program of this machine, if it has it; a shell also where every script looks for it."""
        if (found := shutil.which(name)) is not None:
            self.file(Path(found), f"/{'bin' if name == 'sh' else 'usr/bin'}/{name}")

    def tree(self, folder: Path, keep: Callable[[str], bool] = lambda _: True) -> None:
        """Put all files below a folder whose paths, relative to it, are to be kept; links that lead nowhere are left out."""
        for place in sorted(folder.rglob("*")):
            if keep(str(place.relative_to(folder))) and place.is_file():
                self.file(place)

    def libraries(self) -> None:
        """Put the shared libraries that what is there by now needs."""
        asked: set[Path] = set()
        while wanted := {p for t, p in self._files.items() if _needs_libraries(t, p)} - asked:
            asked |= wanted
            for place in map(Path, _needed(wanted)):
                if os.path.normpath(place) not in self._files:
                    self.file(place)

    def key(self) -> str:
        """Return what stands for the content: other files here, by size and time, give another."""
        digest = hashlib.sha256(_FORMAT.encode())
        for target, source in sorted(self._files.items()):
            stat = source.stat()
            digest.update(f"{target} {stat.st_size} {stat.st_mtime_ns} {stat.st_mode}\n".encode())
        digest.update(json.dumps([sorted(self._links.items()), sorted(self._texts.items())]).encode())
        return digest.hexdigest()[:16]

    def write(self, path: Path) -> None:
        """Write it as a tar archive: everything belongs to root, and everybody may read it."""
        with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
            for folder in self._folders():
                entry = tarfile.TarInfo(folder.lstrip("/"))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder in ("/tmp", "/var/tmp") else 0o755
                archive.addfile(entry)
            for target, source in sorted(self._files.items()):
                entry = archive.gettarinfo(str(source), target.lstrip("/"))
                # Files that are one here (a hard link) are written each as itself.
                entry.type, entry.linkname, entry.size = tarfile.REGTYPE, "", source.stat().st_size
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = "root"
                entry.mode = 0o755 if entry.mode & 0o111 else 0o644
                with open(source, "rb") as data:
                    archive.addfile(entry, data)
            for target, (text, mode) in sorted(self._texts.items()):
                entry = tarfile.TarInfo(target.lstrip("/"))
                entry.size, entry.mode = len(text.encode()), mode
                archive.addfile(entry, io.BytesIO(text.encode()))
            for target, to in sorted(self._links.items()):
                entry = tarfile.TarInfo(target.lstrip("/"))
                entry.type, entry.linkname = tarfile.SYMTYPE, to
                archive.addfile(entry)

    def _folders(self) -> Iterable[str]:
        found = {"/tmp", "/var/tmp", "/var", "/root", "/etc/default", "/etc", "/run"}
        for target in (*self._files, *self._texts, *self._links):
            found.update(str(parent) for parent in Path(target).parents)
        return sorted(found - {"/"})


def with_python() -> tuple[RootFs, str]:
    """Return a file system with the Python that runs this, and its library; and the folder of its program.

    What is installed on this machine besides is not in it.
    """
    # In a virtual environment: the Python that it was made of.
    base: str = getattr(sys, "_base_executable", sys.executable)
    said = subprocess.run([base, "-I", "-c", _ASK_PYTHON], capture_output=True, text=True, timeout=60, check=True)
    where: dict[str, str] = json.loads(said.stdout)
    program = Path(where["program"])
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    root = RootFs()
    root.file(program, str(program.parent / name))
    for other in ("python3", "python"):
        root.link(str(program.parent / other), name)
        if program.parent != Path("/usr/local/bin"):
            root.link(f"/usr/local/bin/{other}", str(program.parent / name))
    root.tree(Path(where["stdlib"]), _of_python)
    if not Path(where["dynload"]).is_relative_to(where["stdlib"]):
        root.tree(Path(where["dynload"]), _of_python)
    root.libraries()
    return root, str(program.parent)


def with_java(java: str, folders: Iterable[Path]) -> tuple[RootFs, str]:
    """Return a file system with this machine's Java and these folders of jars; and the Java program's place in it."""
    said = subprocess.run(
        [java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=True
    )
    home = re.search(r"java\.home = (.+)", said.stderr)
    assert home is not None, f"{java} does not say where it stands: {said.stderr}"
    place = Path(home[1])
    root = RootFs()
    root.tree(place, _of_java)
    for folder in folders:
        root.tree(folder)
    root.libraries()
    return root, str(place / "bin" / "java")


def _of_python(path: str) -> bool:
    parts = Path(path).parts
    # A `__pycache__` is kept: a user that may not write there would compile the library at each start.
    return not any(part in _NOT_PYTHON for part in parts) and not parts[0].startswith("config-") and not _left_out(path)


def _of_java(path: str) -> bool:
    return not path.startswith(_NOT_JAVA) and not _left_out(path)


def _left_out(path: str) -> bool:
    return path.endswith((".a", ".opt-1.pyc", ".opt-2.pyc")) or _DESKTOP.search(Path(path).name) is not None


def _needs_libraries(target: str, source: Path) -> bool:
    if "/bin/" not in target and "/sbin/" not in target and ".so" not in source.name:
        return False
    with open(source, "rb") as data:
        return data.read(4) == b"\x7fELF"


def _needed(programs: Iterable[Path]) -> set[str]:
    """Return the libraries that programs and libraries are loaded with, as the system's loader finds them here."""
    said = subprocess.run(
        ["ldd", *map(str, sorted(programs))], capture_output=True, text=True, timeout=300, check=False
    )  # it ends with 1 where one of them needs none
    return set(_FOUND.findall(said.stdout))


def _cached_library(name: str) -> Path | None:
    ldconfig = shutil.which("ldconfig", path="/sbin:/usr/sbin:/bin:/usr/bin") or "ldconfig"
    said = subprocess.run([ldconfig, "-p"], capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(rf"^\s{re.escape(name)} \(libc6,x86-64.*=> (\S+)$", said, re.MULTILINE) or re.search(
        rf"^\s{re.escape(name)} .*=> (\S+)$", said, re.MULTILINE
    )
    return Path(found[1]) if found else None
