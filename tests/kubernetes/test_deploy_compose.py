"""The Compose file: of the form that the specification asks for, and with services, files and times that fit together."""

from __future__ import annotations

import http.client
import json
import threading
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from inbound.cli.main import main
from inbound.config import load
from inbound.kubernetes.plan import LEAVING
from inbound.plan.plan import plan_channels
from tests.loaded_module import load_module

DEPLOY = Path(__file__).parent.parent.parent / "deploy"
SCHEMA = json.loads((Path(__file__).parent.parent / "schemas" / "compose.json").read_text())
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
CONFIG = DEPLOY / "compose" / "config" / "inbound.yaml"
LOADED = load(CONFIG.read_text(), filename=str(CONFIG))


def schema_problems(compose: dict[str, Any]) -> list[str]:
    """Return what the specification's own schema says against a Compose file."""
    # This edition of it is older than the project's name.
    rest = {key: value for key, value in compose.items() if key != "name"}
    return [f"{e.json_path}: {e.message}" for e in jsonschema.Draft201909Validator(SCHEMA).iter_errors(rest)]


def test_it_is_of_the_form_that_compose_reads() -> None:
    """By the specification's schema, which finds what is misspelt."""
    assert schema_problems(COMPOSE) == []
    wrong = {**COMPOSE, "services": {**SERVICES, "inbound": {**SERVICES["inbound"], "stop_grace_periods": "50s"}}}
    assert len(schema_problems(wrong)) == 1


def test_real_kafka_and_zookeeper_three_replicas_and_a_subscriber() -> None:
    """The images of the projects themselves, in the versions that the tests run."""
    from inbound.embedded.jars import KAFKA_VERSION, ZOOKEEPER_VERSION

    images = {name: service["image"] for name, service in SERVICES.items()}
    assert images == {
        "zookeeper": f"zookeeper:{ZOOKEEPER_VERSION.rpartition('.')[0]}",
        "kafka": f"apache/kafka:{KAFKA_VERSION}",
        "sink": "inbound:local",
        "inbound": "inbound:local",
    }
    assert SERVICES["inbound"]["deploy"]["replicas"] == 3


def test_nothing_starts_before_what_it_needs_is_well() -> None:
    """Each service that others wait for says when it is well; inbound's own check comes with the image."""
    for name, needed in SERVICES["inbound"]["depends_on"].items():
        assert needed == {"condition": "service_healthy"}
        assert SERVICES[name]["healthcheck"]["test"][0] in ("CMD", "CMD-SHELL")
    assert set(SERVICES["inbound"]["depends_on"]) == set(SERVICES) - {"inbound"}


def test_volumes_are_declared_and_files_are_there() -> None:
    """What is mounted exists; every declared volume is used; the folder of the configuration is mounted, not the file."""
    used = set()
    for service in SERVICES.values():
        for mount in service.get("volumes", []):
            source, _, *_ = mount.split(":")
            if source.startswith("."):
                assert (DEPLOY / source).exists(), source
            else:
                used.add(source)
    assert used == set(COMPOSE["volumes"])
    assert "./compose/config:/etc/inbound/config:ro" in SERVICES["inbound"]["volumes"]
    build = SERVICES["inbound"]["build"]
    assert (DEPLOY / build["context"] / build["dockerfile"]).samefile(DEPLOY / "Dockerfile")


def test_a_stop_is_waited_for() -> None:
    """For longer than a callback may take, and what comes after it."""
    longest = max(plan.config.shutdown_timeout for plan in plan_channels(LOADED).values())
    shipped_or_drained = 10

    assert int(SERVICES["inbound"]["stop_grace_period"].removesuffix("s")) >= longest + LEAVING + shipped_or_drained


def test_ports_are_those_of_the_configuration_and_open_to_this_machine_alone() -> None:
    """One of each range for each replica."""
    ports = [port.rsplit(":", 2) for port in SERVICES["inbound"]["ports"]]

    assert {int(port) for *_, port in ports} == {LOADED.config.admin.port, LOADED.config.ingress.port}  # type: ignore[union-attr]
    for address, published, _ in ports:
        first, last = map(int, published.split("-"))
        assert (address, last - first + 1) == ("127.0.0.1", SERVICES["inbound"]["deploy"]["replicas"])
    assert [port.split(":")[0] for port in SERVICES["kafka"]["ports"]] == ["127.0.0.1"]


def test_the_replicas_have_no_rights_and_nothing_to_write_to_but_volumes() -> None:
    """As in Kubernetes; the ledger is on the volume."""
    for name in ("inbound", "sink"):
        service = SERVICES[name]
        assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
        assert service["security_opt"] == ["no-new-privileges:true"]
    state = next(mount for mount in SERVICES["inbound"]["volumes"] if mount.startswith("inbound-state:"))
    assert Path(LOADED.config.ledger.path).is_relative_to(state.partition(":")[2])


def test_the_configuration_is_good(capsys: pytest.CaptureFixture[str]) -> None:
    """By `inbound check`, and its servers are services with those ports."""
    assert main(["check", "-c", str(CONFIG)]) == 0
    assert capsys.readouterr().out.splitlines()[0].startswith("channel orders.sink: group orders-svc.sink reads orders")

    listeners = dict(
        one.split("://") for one in SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"].split(",")
    )
    assert LOADED.config.kafka["bootstrap.servers"] == listeners["PLAINTEXT"]
    assert LOADED.config.zookeeper.hosts == "zookeeper:2181"
    assert set(LOADED.config.admin.hosts) <= set(SERVICES)
    assert "inbound" in LOADED.config.admin.hosts
    assert LOADED.config.channels["orders"].subscriptions["sink"]["subscriberUri"] == "http://sink:8080/"


def test_kafkas_listeners_fit_together() -> None:
    """Every listener has a protocol, what is advertised is listened on, and the published port is the one for the host."""
    environ = SERVICES["kafka"]["environment"]
    ports = dict(x.split("://:") for x in environ["KAFKA_LISTENERS"].split(","))
    protocols = dict(x.split(":") for x in environ["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    advertised = dict(x.split("://") for x in environ["KAFKA_ADVERTISED_LISTENERS"].split(","))

    assert set(ports) == set(protocols)
    assert {name: address.rpartition(":")[2] for name, address in advertised.items()}.items() <= ports.items()
    assert SERVICES["kafka"]["ports"] == [f"127.0.0.1:{ports['HOST']}:{ports['HOST']}"]
    assert environ["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"1@localhost:{ports['CONTROLLER']}"


def test_the_subscriber_takes_events_and_prints_them(capsys: pytest.CaptureFixture[str]) -> None:
    """With their attributes; and it says that it is there."""
    sink = load_module("deploy/compose/sink.py")
    with ThreadingHTTPServer(("127.0.0.1", 0), sink.Sink) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
        codes = []
        for method, body in (("GET", b""), ("POST", b"hello")):
            connection.request(method, "/", body, {"ce-id": "7", "CE-Type": "order"})
            answer = connection.getresponse()
            answer.read()
            codes.append(answer.status)
        connection.close()
        server.shutdown()
        thread.join()

    assert codes == [200, 202]
    assert capsys.readouterr().out == "id=7 type=order (5 bytes)\n"
