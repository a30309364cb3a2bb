"""`inbound check` warns of a ledger that would be gone with its pod."""

from __future__ import annotations

import sys
from pathlib import Path, PurePosixPath

import pytest

from inbound.cli.main import main
from inbound.cli.run.check import in_kubernetes, ledger_warnings, passing
from inbound.config import LedgerConfig

#: Of a pod on containerd with two emptyDirs (one in memory), a PersistentVolumeClaim and a ConfigMap.
POD = r"""
2345 1890 0:281 / / rw,relatime master:410 - overlay overlay rw,lowerdir=/var/lib/a:/var/lib/b,upperdir=/u,workdir=/w
2346 2345 0:283 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
2347 2345 0:284 / /dev rw,nosuid - tmpfs tmpfs rw,size=65536k,mode=755
2350 2345 259:1 /var/lib/kubelet/pods/3f1c/volumes/kubernetes.io~empty-dir/scratch /scratch rw,noatime - ext4 /dev/nvme0n1p1 rw
2351 2345 0:270 / /scratch/fast rw,relatime - tmpfs tmpfs rw,size=1048576k
2352 2345 259:5 / /data rw,relatime - ext4 /dev/nvme1n1 rw
2353 2345 0:271 / /etc/inbound ro,relatime - tmpfs tmpfs rw,size=131072k
2354 2345 259:6 / /my\040disk rw,relatime shared:7 - xfs /dev/nvme2n1 rw
"""
#: Of a virtual machine: nothing is lost with a pod.
MACHINE = """
27 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
25 24 0:23 / /dev/shm rw,relatime - tmpfs tmpfs rw,size=24684092k
"""
ADVICE = "mount a PersistentVolume there, give a URI such as s3://bucket/ledger, or set ledger.type to kafka"


@pytest.mark.parametrize(
    ("mounts", "path", "expected"),
    [
        (POD, "/app/ledger", "the container's own file system (overlay)"),
        (POD, "/scratch/ledger", "an emptyDir volume"),
        (POD, "/scratch/fast/ledger", "memory (tmpfs)"),
        (POD, "/data/ledger", None),
        (POD, "/database", "the container's own file system (overlay)"),
        (POD, "/my disk/ledger", None),
        # A volume that is mounted over the image's own.
        (POD + "2400 2345 0:300 / /data rw - tmpfs tmpfs rw\n", "/data/ledger", "memory (tmpfs)"),
        (MACHINE, "/ledger", None),
        ("", "/ledger", None),
        ("no mounts\n", "/ledger", None),
    ],
)
def test_the_mount_that_a_folder_is_on_says_whether_it_outlives_the_pod(
    mounts: str, path: str, expected: str | None
) -> None:
    """The deepest and the last mount counts, whole parts of the path are compared, and escaped names are read."""
    assert passing(mounts, PurePosixPath(path)) == expected


def test_a_pod_is_known_by_its_variable_or_its_account(tmp_path: Path) -> None:
    """A pod without service account has the variable, one without service links the account."""
    missing = tmp_path / "none"

    assert in_kubernetes({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, missing)
    assert in_kubernetes({}, tmp_path)
    assert not in_kubernetes({}, missing)


def test_the_warning_names_the_path_and_what_to_do() -> None:
    """For files in a pod only; a topic and a lasting volume are fine. Behind a URI the spool is what may be lost."""
    lost = LedgerConfig(path=Path("/app/ledger"))

    assert ledger_warnings(lost, True, POD) == [
        "ledger.path /app/ledger: it is on the container's own file system (overlay), and gone when this pod is deleted; "
        + ADVICE
    ]
    assert ledger_warnings(lost, False, POD) == []
    assert ledger_warnings(LedgerConfig(path=Path("/data/ledger")), True, POD) == []
    assert ledger_warnings(LedgerConfig(type="kafka"), True, POD) == []

    shipped = LedgerConfig(path="s3://bucket/ledger", spool=Path("/scratch/spool"))
    (warning,) = ledger_warnings(shipped, True, POD)
    assert warning.startswith(
        "ledger.spool /scratch/spool: it is on an emptyDir volume; when this pod is deleted without"
    )
    assert "entries of the last 30s that were not shipped are gone" in warning


CONFIG = "channels: {orders: {topics: [orders], group: g, processor: {type: simple, options: {sinks: [log]}}}}\n"


@pytest.mark.parametrize(
    ("ledger", "pyarrow", "code", "said"),
    [
        (
            "type: none", True, 0,
            "warning: ledger.type none: what is lost or repeated can't be proven; set it to files, or to kafka\n",
        ),
        (
            "path: 's3://bucket/ledger'", False, 2,
            "error: ledger.path s3://bucket/ledger: a URI needs pyarrow, which is not installed; "
            "run: pip install 'inbound-kafka[ledger]'\n",
        ),
        (
            "path: 'floppy://a/ledger'", True, 2,
            "error: ledger.path floppy://a/ledger: Unrecognized filesystem type in URI: floppy://a/ledger; "
            "give a folder, or another URI\n",
        ),
    ],
)  # fmt: skip
def test_check_looks_at_the_ledger_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    ledger: str, pyarrow: bool, code: int, said: str,
) -> None:  # fmt: skip
    """No ledger is only a warning; a URI that cannot be used is an error."""
    if not pyarrow:
        monkeypatch.setitem(sys.modules, "pyarrow.fs", None)
    (tmp_path / "inbound.yaml").write_text(f"{CONFIG}ledger: {{{ledger}}}\n")

    assert (main(["check", "-c", str(tmp_path / "inbound.yaml")]), capsys.readouterr().err) == (code, said)
