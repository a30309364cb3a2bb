"""Renew requirements/build.lock and requirements/dev.lock from setup.cfg (`make lock`; `--upgrade` for newer versions).

The locks hold every package of every extra for all supported Pythons and platforms, with hashes, and name no index:
where packages come from stays the machine's own pip configuration.
"""

from __future__ import annotations

import configparser
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: PySpark is published as source only, and the locks are installed without build isolation (which would fetch
#: unlocked build tools): what builds it, and us, is locked too, and installed first.
BUILD_TOOLS = ("setuptools>=77", "wheel")
#: The newest Spark whose Kafka connector resolves whole: of others, the part that gets tokens is missing in places.
PINNED = ("pyspark==4.0.0",)
HEADER = "# Made by `make lock` from setup.cfg. Don't edit.\n"


def requirements_of(setup_cfg: Path) -> list[str]:
    """Return the requirements in setup.cfg, those of all extras included."""
    config = configparser.ConfigParser()
    config.read_string(setup_cfg.read_text())
    fields = [config["options"]["install_requires"], *config["options.extras_require"].values()]
    return sorted({line for field in fields for line in field.split("\n") if line})


def compile_lock(lock: Path, requirements: list[str], options: list[str]) -> None:
    """Write `lock` by uv; versions that it already pins are kept unless `options` has --upgrade."""
    lock.parent.mkdir(exist_ok=True)
    subprocess.run(
        [
            sys.executable, "-m", "uv", "pip", "compile", "-", "--output-file", str(lock), "--quiet",
            "--universal", "--python-version", "3.11", "--generate-hashes",
            "--no-annotate", "--no-header", "--no-emit-index-url", "--no-emit-find-links", *options,
        ],
        input="\n".join(requirements), text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    lock.write_text(HEADER + lock.read_text().removeprefix(HEADER))


def main() -> None:
    options = sys.argv[1:]
    locks = ROOT / "requirements"
    compile_lock(locks / "build.lock", list(BUILD_TOOLS), options)
    # The same setuptools in both: the second install must not change the first one's.
    constraint = ["--constraint", str(locks / "build.lock")]
    compile_lock(locks / "dev.lock", [*requirements_of(ROOT / "setup.cfg"), *PINNED], [*constraint, *options])


if __name__ == "__main__":
    main()
