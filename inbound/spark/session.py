"""Starts and ends Spark, with the Kafka connector of Spark's version.

Executors on other machines get a wheel of the inbound that runs here. An installed distribution is packed again from its own
record; in a checkout the wheel is built. A zip of the repo would not do: the rooms have other paths in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import inbound
from inbound.embedded.jars import Progress, check_java, fetch_connector, silent
from inbound.errors import EmbeddedClusterError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Settings of every session, unless the user changes them by --conf.
DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two attempts of one task at the same time would run a processor twice.
    "spark.speculation": "false",
    # Keys and certificates are options of the Kafka source: Spark must not print them.
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|ssl|sasl",
}
#: Settings for a master on this machine: no name of this host has to resolve, no other host can connect.
LOCAL: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

#: Lines that the JVM always writes when it starts.
_NOISE = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    'Setting default log level to "',
    "To adjust logging level use sc.setLogLevel(",
)
#: The JVM is killed if it takes longer to end. Seconds.
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The settings of a Spark session."""

    jar_cache: Path
    java: str = "java"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)  # the user's, over ours
    wheel: Path | None = None  # of inbound, for executors elsewhere; None: it is made where the master is not local
    py_files: tuple[Path, ...] = ()  # the user's processors, for executors

    @property
    def local(self) -> bool:
        """Return whether driver and executors are one process here."""
        return self.master.split("[")[0] == "local"


@contextmanager
def spark_session(settings: SparkSettings, name: str, progress: Progress = silent) -> Iterator[SparkSession]:
    """Start a session for the block, and end it and its JVM.

    A session that already runs in this process is used as it is, and goes on afterwards.

    Raises:
        SparkError: no PySpark, no Java or an old one, the connector could not be fetched, or Spark did not start.
    """
    try:
        import pandas  # noqa: F401  Spark's own way to hand columns to Python needs both
        import pyarrow  # noqa: F401
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkError(
            f"spark: {error.name} is not installed. Install it: pip install 'inbound-kafka[spark]'"
        ) from error
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    try:
        java = check_java(settings.java)
        jars = fetch_connector(settings.jar_cache, pyspark.__version__, java=java, progress=progress)
    except EmbeddedClusterError as error:
        raise SparkError(f"spark: {error}") from error
    with as_file(files("inbound.spark") / "log4j2.properties") as logging, tempfile.TemporaryDirectory() as folder:
        conf = {
            **DEFAULTS,
            **(LOCAL if settings.local else {}),
            # Workers on this machine find what this process finds: plugins beside the configuration, a checkout.
            **({"spark.executorEnv.PYTHONPATH": os.pathsep.join(filter(None, sys.path))} if settings.local else {}),
            "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={logging.as_uri()}",
            "spark.jars": ",".join(jar.as_uri() for jar in jars),
            **settings.conf,
            "spark.master": settings.master,
            "spark.app.name": f"inbound {name}",
        }
        shipped = list(settings.py_files)
        if not settings.local:
            shipped.append(settings.wheel or make_wheel(Path(folder)))
        with _jvm(conf, settings.master) as spark:
            # Executors run the Python that this process runs; PySpark itself would only look into the environment.
            spark.sparkContext.pythonExec = settings.conf.get("spark.pyspark.python", sys.executable)
            for path in shipped:  # of archives Spark takes .zip and .egg; a wheel is a zip
                zipped = Path(folder, f"{path.stem}.zip")
                spark.sparkContext.addPyFile(str(shutil.copy(path, zipped) if path.suffix == ".whl" else path))
            yield spark


@contextmanager
def _jvm(conf: Mapping[str, str], master: str) -> Iterator[SparkSession]:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    settings = SparkConf(loadDefaults=False).setAll(list(conf.items()))
    errors = _Errors()
    gateway: Any = None
    try:
        try:
            gateway = launch_gateway(settings, {"stderr": errors.pipe})  # type: ignore[no-untyped-call]
        finally:
            errors.relay()
        spark = SparkSession(SparkContext(conf=settings, gateway=gateway))
    except Exception as error:
        why = cause(error)  # asks the JVM, so before it ends
        _end(gateway)
        # Py4J raises the JVM's exceptions at the start as they are.
        if not isinstance(error, (PySparkException, RuntimeError, OSError)) and not type(error).__module__.startswith(
            "py4j"
        ):
            raise
        said = errors.last()
        raise SparkError(
            f"spark: no session on {master}: {why}{f' ({said})' if said else ''}. Check --master and --conf."
        ) from error
    try:
        yield spark
    finally:
        spark.stop()
        _end(gateway)


def _end(gateway: Any) -> None:
    """End the JVM: another session may need one with other memory."""
    from pyspark import SparkContext

    # PySpark keeps the gateway for the next context of this process, and would find it dead.
    SparkContext._gateway = SparkContext._jvm = None
    if gateway is None:
        return
    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


class _Errors:
    """The JVM's lines on stderr, without its usual noise."""

    def __init__(self) -> None:
        reading, self.pipe = os.pipe()
        self._reading: IO[str] = os.fdopen(reading, encoding="utf-8", errors="replace")
        self._last: deque[str] = deque(maxlen=5)
        self._thread = threading.Thread(target=self._run, name="spark-stderr", daemon=True)

    def relay(self) -> None:
        """Pass on the JVM's lines from now on, until it ends."""
        os.close(self.pipe)  # the JVM has its own
        self._thread.start()

    def last(self) -> str:
        """Return the last lines; only once the JVM has ended."""
        self._thread.join(_END_SECONDS)
        return "; ".join(self._last)

    def _run(self) -> None:
        with self._reading as lines:
            for line in lines:
                if not line.startswith(_NOISE):
                    self._last.append(line.strip())
                    sys.stderr.write(line)


#: A line of a Java stack trace with a cause: `Caused by: org.x.SomeException: why`.
_CAUSED_BY = re.compile(r"^Caused by: (?:[\w$.]+\.)?([\w$]+): (.*)$", re.MULTILINE)
_LONGEST = 500


def cause(error: BaseException) -> str:
    """Return a failed job's innermost cause, or the error's first line."""
    try:
        text = str(error)  # of the JVM's exceptions: asks the JVM
        java = getattr(error, "java_exception", None)
        if java is not None:
            text = f"{text}\n{_chain(java)}"
    except Exception:  # which may have ended
        text = f"{type(error).__name__}, and Spark's JVM has ended"
    inner = _CAUSED_BY.findall(text)
    said = f"{inner[-1][0]}: {inner[-1][1]}" if inner else text.strip().split("\n")[0]
    return said if len(said) <= _LONGEST else f"{said[:_LONGEST]}..."


def _chain(java: object) -> str:
    """Return the causes of a JVM's exception, as in a stack trace."""
    lines: list[str] = []
    inner = java.getCause()  # type: ignore[attr-defined]
    while inner is not None and len(lines) < 20:
        lines.append(f"Caused by: {inner.toString()}".split("\n")[0])
        inner = inner.getCause()
    return "\n".join(lines)


#: Time between two looks at Spark's tasks. Seconds.
EVERY = 0.5


@contextmanager
def watched(spark: SparkSession, tell: Callable[[int, int, int], None], every: float = EVERY) -> Iterator[None]:
    """Call `tell(done, running, total)` with Spark's tasks. Its own thread."""
    over = threading.Event()

    def run() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.wait(every):
            infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
            if infos:
                tell(
                    sum(info.numCompletedTasks for info in infos),
                    sum(info.numActiveTasks for info in infos),
                    sum(info.numTasks for info in infos),
                )

    thread = threading.Thread(target=run, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


_NAME = "inbound-kafka"
#: Folders of a checkout that are no part of the distribution; most of them are large.
_BESIDE = frozenset({"artifacts", "benchmarks", "build", "dist", "docs", "integration", "tests"})


def make_wheel(folder: Path) -> Path:
    """Make the wheel in `folder`, and return it.

    Raises:
        SparkError: there is neither an installed distribution nor a checkout, or building failed.
    """
    package = Path(inbound.__file__).parent
    checkout = package.parent
    if (checkout / "setup.cfg").is_file():
        return _built(checkout, folder)
    try:
        installed = metadata.distribution(_NAME)
    except metadata.PackageNotFoundError:
        raise SparkError(
            f"spark: {package} belongs to no installed {_NAME}; name a wheel of it with --wheel, for executors elsewhere"
        ) from None
    return _packed(installed, folder)


def _packed(installed: metadata.Distribution, folder: Path) -> Path:
    """Zip the files of the distribution's record: that is a wheel."""
    name = f"{installed.name.replace('-', '_')}-{installed.version}-py3-none-any.whl"
    files = [file for file in installed.files or () if ".." not in file.parts and "__pycache__" not in file.parts]
    if not any(file.parts[0] == "inbound" for file in files):
        raise SparkError(f"spark: the record of the installed {_NAME} lists no files; name a wheel of it with --wheel")
    with zipfile.ZipFile(folder / name, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in files:
            wheel.write(file.locate(), str(file))
    return folder / name


def _built(checkout: Path, folder: Path) -> Path:
    # In a copy: the wheel would have an earlier build's left-over files, and two processes may build at the same time.
    source = folder / "source"
    shutil.copytree(checkout, source, symlinks=True, ignore=_not_packed(checkout))
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--wheel-dir"]
    done = subprocess.run(
        [*command, str(folder), str(source)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    made = sorted(folder.glob("*.whl"))
    if done.returncode or not made:
        said = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["pip said nothing"]
        raise SparkError(
            f"spark: no wheel could be built from {checkout} for the executors ({said[0]}); name one with --wheel"
        )
    return made[0]


def _not_packed(checkout: Path) -> Callable[[str, list[str]], set[str]]:
    def ignored(folder: str, names: list[str]) -> set[str]:
        top = Path(folder) == checkout
        return {name for name in names if name == "__pycache__" or (top and (name in _BESIDE or name.startswith(".")))}

    return ignored


@contextmanager
def shipped_plugins(spark: SparkSession, folder: Path) -> Iterator[None]:
    """Have executors import from the configuration's folder, as `inbound run` does."""
    modules = sorted(folder.glob("*.py"))
    packages = [found.parent for found in sorted(folder.glob("*/__init__.py"))]
    with tempfile.TemporaryDirectory(prefix="inbound-plugins-") as made:  # executors fetch it when they come up
        target = Path(made) / f"plugins-{spark.sparkContext.applicationId}.zip"
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as zipped:
            for file in [*modules, *(file for package in packages for file in sorted(package.rglob("*.py")))]:
                zipped.write(file, str(file.relative_to(folder)))
        if modules or packages:
            spark.sparkContext.addPyFile(str(target))
        yield
