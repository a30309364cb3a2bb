"""How far Spark's jobs are, while they run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How often Spark is asked. Seconds.
EVERY = 0.5


class Stages(NamedTuple):
    """The tasks of the stages that run now."""

    done: int
    running: int
    total: int


@contextmanager
def watched(spark: SparkSession, tell: Callable[[Stages], None], every: float = EVERY) -> Iterator[None]:
    """Call `tell`, on a thread of its own, as long as the block runs and there are stages."""
    over = threading.Event()

    def run() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.wait(every):
            infos = [info for stage in tracker.getActiveStageIds() if (info := tracker.getStageInfo(stage)) is not None]
            if infos:
                tell(
                    Stages(
                        sum(info.numCompletedTasks for info in infos),
                        sum(info.numActiveTasks for info in infos),
                        sum(info.numTasks for info in infos),
                    )
                )

    thread = threading.Thread(target=run, name="spark-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
