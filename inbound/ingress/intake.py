"""The ingress of a process, if one is configured: another one takes its place when its configuration changes."""

from __future__ import annotations

import logging
from collections.abc import Callable

from inbound.clock import Clock
from inbound.config import Config
from inbound.errors import InboundError
from inbound.ingress.server import Ingress
from inbound.kafka.trial import answers_in_time
from inbound.reconfiguration import TRY_AGAIN

log = logging.getLogger(__name__)

#: How long what is under way may take to be answered before another ingress takes over, in seconds.
DRAIN = 10.0


class Intake:
    """Starts, replaces and stops it. `start` and `stop` by the owner; `change` and `tidy` by the thread of changes.

    `stop` while that thread has ended, or can be waited for no longer.
    """

    def __init__(
        self, make: Callable[[Config], Ingress | None], config: Config, ingress: Ingress | None, clock: Clock
    ) -> None:
        """`ingress` is what `make` has made of `config`; it is not started."""
        self._make = make
        self._config = config  # of the one that runs, or is to come back
        self._clock = clock
        #: The one that runs, or that ran if none could be started since; None: none is configured, or just starts anew.
        self.ingress = ingress
        self._again_at = float("inf")
        self._answered = True

    def try_out(self, config: Config, ends_within: Callable[[float], bool]) -> None:
        """Ask Kafka for its topics, once it answers, as the ingress of `config` would, beside the one that runs.

        `ends_within` waits so many seconds, and returns whether the process is to end.

        Raises:
            InboundError: the settings cannot be used, or Kafka does not answer in time, or does not let us in.
        """
        tried = self._make(config)
        if tried is None:
            return
        try:
            answers_in_time(tried.ask_kafka, f"written to with {tried.client}", self._clock, ends_within)
        finally:
            _drop(tried)

    def start(self) -> None:
        """Listen. Raises ConfigError: the address cannot be used."""
        if self.ingress is not None:
            self.ingress.start()

    def change(
        self, config: Config, *, at_once: Callable[[], bool] = lambda: False, ends: Callable[[], bool] = lambda: False
    ) -> None:
        """Let one made of `config` take the place of the one that runs, which answers what is under way.

        `at_once` is asked again and again, and cuts that short; `ends` says whether the process is to end: then none is
        started any more.

        Raises:
            InboundError: the new one does not start, and one as before runs; or the process is to end.
        """
        new = self._make(config)
        if new is not None:
            new.get_ready()  # while the one before takes events
        before, self.ingress = self.ingress, None
        if before is not None:
            self._answered = before.stop(DRAIN, at_once=at_once)
        if ends():
            _drop(new)
            raise InboundError("ingress: not started anew, for the process is told to stop; start it again")
        self._again_at = float("inf")
        self._answered = True  # what was cut off for other settings is in the log; the end of the process is good
        try:
            _start(new)
        except InboundError as error:
            self._come_back(error, before)
            raise
        self.ingress, self._config = new, config

    def tidy(self) -> None:
        """Bring back, if it is time to, what could not come back."""
        if self._clock.now() < self._again_at:
            return
        try:
            self._bring_back()
        except InboundError as error:
            log.error("ingress: it still cannot come back, and is tried again in %.0f s: %s", TRY_AGAIN, error)
            self._again_at = self._clock.now() + TRY_AGAIN

    def stop(self, seconds: float, *, at_once: Callable[[], bool]) -> bool:
        """Answer what is under way, and end, as `Ingress.stop` does. Returns whether everything was answered."""
        if self.ingress is not None and not self.ingress.stop(seconds, at_once=at_once):
            return False
        return self._answered

    # -- inside ------------------------------------------------------------------------------------------------------

    def _bring_back(self) -> None:
        again = self._make(self._config)
        if again is not None:
            again.get_ready()
        _start(again)
        self.ingress, self._again_at = again, float("inf")

    def _come_back(self, error: InboundError, before: Ingress | None) -> None:
        try:
            self._bring_back()
        except InboundError as second:
            self._again_at = self._clock.now() + TRY_AGAIN
            self.ingress = before  # its threads are dead, so that the process is known not to be well
            raise InboundError(
                f"{error}; nor can the ingress come back as it was, which is tried again every {TRY_AGAIN:.0f} s: {second}"
            ) from None


def _start(ingress: Ingress | None) -> None:
    try:
        if ingress is not None:
            ingress.start()
    except BaseException:
        _drop(ingress)
        raise


def _drop(ingress: Ingress | None) -> None:
    """End what was made with it."""
    if ingress is not None:
        ingress.stop(0.0)
