"""What the jars have to be: the SHA-256 of each, as `sha256sum` writes and checks it.

Maven's own checksums come from the server that the jars come from. These came with inbound.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from inbound.errors import EmbeddedClusterError

#: Of every jar that is fetched, below the name of its bundle. `sha256sum --check` reads it in the cache folder.
LISTED = Path(__file__).with_name("jars.sha256")


def digests_of(bundle: str) -> Mapping[str, str]:
    """Return the digest of each jar of a bundle, by its name; empty: nothing is known of a bundle of that name."""
    found = {}
    for line in LISTED.read_text().splitlines():
        digest, _, path = line.partition("  ")
        folder, _, name = path.partition("/")
        if folder == bundle:
            found[name] = digest
    return found


def check(folder: Path, bundle: str) -> None:
    """See that a folder has the jars of a bundle as they are listed; what is of an unknown bundle is taken as it is.

    Raises:
        EmbeddedClusterError: one is another, is missing, or is too much.
    """
    expected = digests_of(bundle)
    if not expected:
        return
    found = {path.name: path for path in folder.glob("*.jar")}
    wrong = [f"{name} is missing" for name in sorted(expected.keys() - found.keys())]
    wrong += [f"{name} is none of its jars" for name in sorted(found.keys() - expected.keys())]
    for name in sorted(expected.keys() & found.keys()):
        with found[name].open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != expected[name]:
            wrong.append(f"{name} has the SHA-256 {digest}, and should have {expected[name]}")
    if wrong:
        raise EmbeddedClusterError(
            f"{bundle}: {folder}: {'; '.join(wrong[:3])}{f'; and {len(wrong) - 3} more' if len(wrong) > 3 else ''}. Nothing of "
            "it is run. Delete the folder to have it fetched again; if that does not help, what answers as the Maven Central "
            "repository has other files."
        )


def check_once(folder: Path, bundle: str) -> None:
    """The same, but not again as long as list, sizes and times of the files stay what they are. Raises as `check` does."""
    expected = digests_of(bundle)
    if not expected:
        return
    stamp = folder.with_name(f"{bundle}.checked")
    seen = "".join(f"{expected.get(path.name)} {_state(path)}\n" for path in sorted(folder.glob("*.jar")))
    try:
        if stamp.read_text() == seen:
            return
    except (OSError, UnicodeDecodeError):
        pass  # not checked yet
    check(folder, bundle)
    with suppress(OSError):  # a cache that may only be read is checked each time
        stamp.write_text(seen)


def _state(path: Path) -> str:
    stat = path.stat()
    return f"{stat.st_size} {stat.st_mtime_ns} {path.name}"
