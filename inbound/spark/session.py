"""Starting and ending Spark: with the Kafka connector of its own version, quietly, on any master."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from inbound.embedded.jars import Progress, fetch_connector, silent
from inbound.embedded.java import check_java
from inbound.errors import EmbeddedClusterError, SparkError
from inbound.spark.failures import cause
from inbound.spark.wheel import make_wheel

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: What every session has, unless the user says otherwise by --conf.
DEFAULTS: Mapping[str, str] = {
    "spark.driver.memory": "2g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Two attempts of one task at the same time would run a processor twice.
    "spark.speculation": "false",
    # Keys and certificates are options of the Kafka source; wherever Spark prints options, not these.
    "spark.sql.redaction.options.regex": "(?i)url|secret|password|token|ssl|sasl",
}
#: Of a master on this machine: no name of this host has to resolve, nobody else can connect.
LOCAL: Mapping[str, str] = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

#: What the JVM always says when it starts.
_NOISE = (
    "WARNING: Using incubator modules: jdk.incubator.vector",
    'Setting default log level to "',
    "To adjust logging level use sc.setLogLevel(",
)
#: How long the JVM may take to end by itself. Seconds.
_END_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How to get a session."""

    jar_cache: Path
    java: str = "java"
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)  # the user's, over ours
    wheel: Path | None = None  # of inbound, for executors elsewhere; None: it is made where the master is not local
    py_files: tuple[Path, ...] = ()  # what executors need besides: processors of one's own

    @property
    def local(self) -> bool:
        """Whether driver and executors are one process on this machine."""
        return self.master.split("[")[0] == "local"


@contextmanager
def spark_session(settings: SparkSettings, name: str, progress: Progress = silent) -> Iterator[SparkSession]:
    """Start a session, and end it and its JVM however the block ends.

    A session that runs already in this process is used as it is, and goes on afterwards.

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
            for path in shipped:
                spark.sparkContext.addPyFile(str(_importable(path, Path(folder))))
            yield spark


def _importable(path: Path, folder: Path) -> Path:
    """Return what Spark puts on its workers' path. Of archives it takes .zip and .egg; a wheel is a zip."""
    if path.suffix != ".whl":
        return path
    return Path(shutil.copy(path, folder / f"{path.stem}.zip"))


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
        gateway = launch_gateway(settings, {"stderr": errors.pipe})  # type: ignore[no-untyped-call]
        errors.relay()
        spark = SparkSession(SparkContext(conf=settings, gateway=gateway))
    except Exception as error:
        why = cause(error)  # asks the JVM, so before it ends
        errors.relay()
        _end(gateway)
        # What the JVM throws while it starts comes as it is, by Py4J.
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
    """End the JVM: another session may want another one, with other memory."""
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
    """What the JVM writes to stderr, without what it always says."""

    def __init__(self) -> None:
        reading, self.pipe = os.pipe()
        self._reading: IO[str] = os.fdopen(reading, encoding="utf-8", errors="replace")
        self._last: deque[str] = deque(maxlen=5)
        self._thread: threading.Thread | None = None

    def relay(self) -> None:
        """Pass on from now on what the JVM says, until it ends."""
        if self._thread is None:
            os.close(self.pipe)  # the JVM has its own
            self._thread = threading.Thread(target=self._run, name="spark-stderr", daemon=True)
            self._thread.start()

    def last(self) -> str:
        """Return the last lines; only once the JVM has ended."""
        if self._thread is not None:
            self._thread.join(_END_SECONDS)
        return "; ".join(self._last)

    def _run(self) -> None:
        with self._reading as lines:
            for line in lines:
                if not line.startswith(_NOISE):
                    self._last.append(line.strip())
                    sys.stderr.write(line)
