"""A process that is an ingress alone follows its configuration: good edits, and refused ones."""

from __future__ import annotations

import argparse
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from inbound.cli.shared.files import ConfigFiles
from inbound.config import Config, IngressConfig
from inbound.errors import BrokerUnavailableError, ConfigError, InboundError
from inbound.ingress.server import Ingress
from inbound.observe.status.status import ReloadOutcome
from inbound.process.ingress import IngressProcess
from inbound.process.reload.changes import ProcessPlan
from inbound.process.reload.reconfiguration import TRY_AGAIN
from inbound.process.sections import Intake, Makers
from inbound.testing.clock import ManualClock
from tests.http_receiver import CERTIFICATES
from tests.ingress.ingress_stage import MemoryProducer, acknowledge_once, ask, ask_in_flight, await_topics
from tests.waiting import until


@dataclass
class Stage:
    """A process with its file; it writes to memory, and notes each ingress that is made."""

    folder: Path
    made: list[Ingress] = field(default_factory=list)
    client_ids: list[object] = field(default_factory=list)
    producer: MemoryProducer = field(default_factory=lambda: MemoryProducer("orders"))

    def __post_init__(self) -> None:
        self.file = self.folder / "inbound.yaml"
        self.logs: list[str] = []
        self.sections: dict[str, object] = {"admin": {"listen": "127.0.0.1:0"}, "ingress": {"listen": "127.0.0.1:0"}}
        self.file.write_text(yaml.safe_dump(self.sections))
        files = ConfigFiles(argparse.Namespace(config=self.file, set=[]))
        makers = Makers(ingress=self._make, logs=lambda config: self.logs.append(config.logging.level))
        self.process = IngressProcess(files.load(), makers, source=files)

    def _make(self, config: Config) -> Ingress:
        assert config.ingress is not None
        self.made.append(Ingress(config.ingress, {}, producer=self.producer))
        self.client_ids.append(config.kafka.get("client.id"))
        return self.made[-1]

    def running(self) -> dict[int, object]:
        """Return which of the ingresses made run, and their `client.id` of Kafka."""
        alive = [all(thread.alive for thread in ingress.threads()) for ingress in self.made]
        return {number: self.client_ids[number] for number, lives in enumerate(alive) if lives}

    def new_brokers(self, taken: socket.socket) -> dict[str, object]:
        """Return an edit of Kafka and the ingress that fails between the two, at the admin port."""
        ingress = {"listen": "127.0.0.1:0", "max_connections": 7}
        return {
            "ingress": ingress,
            "kafka": {"client.id": "x"},
            "admin": {"listen": f"127.0.0.1:{taken.getsockname()[1]}"},
        }

    @staticmethod
    def try_out(config: Config, refused: threading.Event) -> None:
        """Answer for the new brokers alone."""
        if config.kafka.get("client.id") != "x":
            refused.set()
            raise BrokerUnavailableError("the former brokers do not answer")

    def write(self, **sections: object) -> None:
        """Write the file again with other sections."""
        self.file.write_text(yaml.safe_dump({**self.sections, **sections}))

    def edit(self, **sections: object) -> ReloadOutcome:
        """Write the file again with other sections, and have it looked at."""
        self.write(**sections)
        return self.reload()

    def reload(self) -> ReloadOutcome:
        outcome = self.process.reconfiguration.reload(30.0)
        assert outcome is not None
        return outcome

    def edit_ingress(self, **keys: object) -> ReloadOutcome:
        """Change keys of the section `ingress`."""
        return self.edit(ingress={"listen": "127.0.0.1:0", **keys})

    def post(self, body: bytes = b"x") -> int:
        """Post to the ingress as it is now, when it knows its topics. Returns the status of the answer."""
        ingress = self.made[-1]
        await_topics(ingress)
        return ask(ingress, body=body)[0]

    def post_in_flight(self) -> Future[tuple[int, str]]:
        """Post an event that Kafka does not acknowledge yet. Returns the answer to come."""
        await_topics(self.made[0])
        return ask_in_flight(self.made[0], self.producer)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    one = Stage(tmp_path)
    one.process.start()
    yield one
    one.process.stop(5.0, at_once=lambda: False)


def test_another_limit_holds_from_now_on(stage: Stage) -> None:
    """The ingress restarts with it; status shows the steps."""
    before = stage.post(b"x" * 200_000)

    outcome = stage.edit_ingress(max_request_bytes="100kB")

    after = stage.post(b"x" * 200_000)
    reload = stage.process.status().reload
    assert (before, after, outcome.outcome) == (202, 413, "applied")
    assert reload is not None
    assert (reload.applied_total, reload.last_steps, reload.problem) == (1, ["ingress: max_request_bytes"], None)


def test_what_is_under_way_is_answered_before_another_ingress_takes_over(stage: Stage) -> None:
    """By the one that took it, with 202."""
    answer = stage.post_in_flight()
    acknowledge_once(lambda: stage.made[0].status().draining, stage.producer)

    outcome = stage.edit_ingress(max_connections=7)

    assert (outcome.outcome, answer.result(), len(stage.made)) == ("applied", (202, ""), 2)


def test_a_bad_edit_is_refused_and_the_old_goes_on(stage: Stage) -> None:
    """With file and line, in the answer and in status."""
    outcome = stage.edit_ingress(max_conections=7)

    status = stage.process.status()
    assert (outcome.outcome, stage.post(), len(stage.made)) == ("refused", 202, 1)
    assert f"{stage.file}:5: ingress.max_conections: unknown key" in str(status.config_problem)


def test_without_an_ingress_there_would_be_nothing_left(stage: Stage) -> None:
    """So such a configuration is refused, as at the start."""
    del stage.sections["ingress"]

    outcome = stage.edit(channels={"a": {"topics": ["t"], "group": "g", "processor": {"type": "simple"}}})

    problem = "ingress: missing; give it at least `listen`, such as `ingress: {listen: 127.0.0.1:8080}`"
    assert (outcome.problem, stage.post()) == (problem, 202)


def test_a_port_that_is_taken_brings_the_old_ingress_back(stage: Stage) -> None:
    """And status says why."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        outcome = stage.edit(ingress={"listen": address, "max_request_bytes": "100kB"})

    assert (outcome.outcome, stage.post(b"x" * 200_000)) == ("rolled-back", 202)
    problem = str(stage.process.status().config_problem)
    assert f"ingress.listen: cannot listen on {address}" in problem
    assert "in use; stop what listens there" in problem


def test_a_change_of_both_sections_restarts_the_ingress_once(stage: Stage) -> None:
    """The other one that is made asks Kafka whether the settings work."""
    outcome = stage.edit(ingress={"listen": "127.0.0.1:0", "max_connections": 7}, kafka={"client.id": "x"})

    threads = [[thread.alive for thread in ingress.threads()] for ingress in stage.made]
    assert (outcome.steps, threads) == (
        ["kafka: client.id", "ingress: max_connections"],
        [[False, False], [False, False], [True, True]],
    )


@pytest.mark.parametrize("before", [{}, {"logging": {"level": "debug"}}, {"kafka": {"client.id": "y"}}])
def test_a_refused_edit_of_brokers_and_ingress_leaves_the_ingress_alone(
    stage: Stage, before: dict[str, object]
) -> None:
    """It is not restarted, so it does not depend on whether the former brokers answer on the way back."""
    if before:
        stage.edit(**before)
    running = stage.running()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = stage.edit(**{**before, **stage.new_brokers(taken)})

    assert (outcome.outcome, stage.running()) == ("rolled-back", running)


def test_brokers_that_a_second_edit_keeps_are_those_of_the_ingress(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first edit failed between Kafka and the ingress, and the former brokers did not answer on the way back."""
    refused = threading.Event()
    monkeypatch.setattr(Intake, "try_out", lambda self, config: stage.try_out(config, refused))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        stage.write(**stage.new_brokers(taken))
        stage.process.reconfiguration.ask()
        assert refused.wait(10.0)

    outcome = stage.edit(kafka={"client.id": "x"})

    assert (outcome.outcome, outcome.steps, [*stage.running().values()]) == ("applied", ["kafka: client.id"], ["x"])


def test_another_certificate_in_the_same_file_is_taken(stage: Stage) -> None:
    """The content of the files counts, not only their names."""
    cert = stage.folder / "cert.pem"
    cert.write_bytes((CERTIFICATES / "server.pem").read_bytes())
    stage.edit_ingress(tls={"cert": str(cert), "key": str(cert)})
    cert.write_bytes(cert.read_bytes() + b"\n")

    outcome = stage.reload()

    assert (outcome.outcome, outcome.steps) == ("applied", ["ingress: files"])


def test_what_has_nothing_to_do_with_the_ingress_changes_beside_it(stage: Stage) -> None:
    """Logs and traces are as configured from now on, and the admin port moves; the ingress goes on."""
    tracing = {"backend": "otlp", "endpoint": "http://127.0.0.1:1/v1/traces"}
    before = stage.process.admin

    outcome = stage.edit(logging={"level": "debug"}, admin={"listen": "localhost:0"}, tracing=tracing)

    status = stage.process.status()
    assert (outcome.outcome, stage.logs, len(stage.made)) == ("applied", ["debug"], 1), outcome
    assert stage.process.admin is not before
    assert status.tracing is not None


def test_an_admin_port_that_is_taken_takes_the_whole_edit_back(stage: Stage) -> None:
    """The admin listener and the ingress are as before."""
    before = stage.process.admin
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        outcome = stage.edit(
            ingress={"listen": "127.0.0.1:0", "max_request_bytes": "100kB"}, admin={"listen": f"127.0.0.1:{port}"}
        )

    assert (outcome.outcome, stage.process.admin is before) == ("rolled-back", True)
    assert stage.post(b"x" * 200_000) == 202


def test_sections_that_it_has_no_use_for_change_nothing(stage: Stage) -> None:
    """They are taken note of: what runs is up to date, and no step says otherwise."""
    outcome = stage.edit(zookeeper={"hosts": "elsewhere:2181"}, ledger={"type": "none"}, explain={"interval": "9s"})

    assert outcome == ReloadOutcome("unchanged", digest=stage.process.status().reload.digest)  # type: ignore[union-attr]


def test_a_stop_while_the_ingress_restarts_answers_requests_in_flight(stage: Stage) -> None:
    """And no other one is started."""
    answer = stage.post_in_flight()
    stage.write(ingress={"listen": "127.0.0.1:0", "max_connections": 7})
    changing = threading.Thread(target=stage.process.reconfiguration.reload, args=(2.0,))  # nobody answers it any more
    changing.start()
    until(lambda: stage.process.status().ingress is None, 10, "the ingress is taken down", look=0.001)
    acknowledge_once(lambda: stage.process.status().stopping, stage.producer)

    answered = stage.process.stop(20.0, at_once=lambda: False)

    changing.join()
    started = [ingress for ingress in stage.made if ingress.url != "http://:0"]
    assert (answered, answer.result(), len(stage.made), len(started)) == (True, (202, ""), 2, 1)


def test_what_cannot_come_back_is_tried_until_it_does() -> None:
    """Until then its threads are dead, so that the process counts as unhealthy."""
    clock, fails = ManualClock(), [False]

    def make(config: Config) -> Ingress:
        if fails[0]:
            raise ConfigError("the key is gone")
        return Ingress(IngressConfig(listen="127.0.0.1:0"), {}, producer=MemoryProducer())

    class Unstartable(Ingress):
        def start(self) -> None:
            fails[0] = True
            raise ConfigError("the port is taken")

    makes = [make, lambda config: Unstartable(IngressConfig(), {}, producer=MemoryProducer()), make, make]
    plan = ProcessPlan(Config(ingress=IngressConfig()), {})
    intake = Intake(lambda config: makes.pop(0)(config), plan, clock, threading.Event(), lambda: False)
    intake.start()

    with pytest.raises(InboundError, match="the port is taken; nor can the ingress come back as it was"):
        intake.change(plan)
    alive = [_alive(intake)]
    fails[0] = False
    intake.tidy()
    alive.append(_alive(intake))
    clock.advance(TRY_AGAIN)
    intake.tidy()
    alive.append(_alive(intake))

    assert (intake.stop(1.0, at_once=lambda: False), alive) == (True, [False, False, True])


def _alive(intake: Intake) -> bool:
    assert intake.ingress is not None
    return all(thread.alive for thread in intake.ingress.threads())


def test_kafka_has_to_answer_with_new_settings() -> None:
    """Asked beside the ingress that runs; what was made to ask with is closed."""
    clock, producer = ManualClock(), MemoryProducer()
    producer.is_away = "nothing listens"
    config = Config(ingress=IngressConfig(listen="127.0.0.1:0"))

    class Passing(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            return clock.wait(threading.Event(), timeout or 0.0)

    intake = Intake(
        lambda config: Ingress(config.ingress or IngressConfig(), {}, producer=producer),
        ProcessPlan(config, {}), clock, Passing(), lambda: False,
    )  # fmt: skip

    with pytest.raises(InboundError) as raised:
        intake.try_out(config)

    assert str(raised.value) == "Kafka does not answer with the new settings, written to with memory: nothing listens"
    assert not isinstance(raised.value, BrokerUnavailableError)
    assert producer.closed
