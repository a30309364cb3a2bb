"""What is traced, and where it goes: the section, and the folders that Knative's ConfigMaps are mounted as."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from inbound.config import depends_on, load, render
from inbound.errors import ConfigError
from inbound.observe.tracing.process import client_of
from inbound.observe.tracing.settings import TracingSettings, settings_of
from inbound.plan.plan import plan_channels

BASE = "channels: {orders: {topics: [orders], group: g, processor: {type: simple}}}\n"


def settings(section: str) -> TracingSettings | None:
    """Return what `tracing: {...}` stands for. Raises ConfigError."""
    return settings_of(load(f"tracing: {{{section}}}\n{BASE}", filename="inbound.yaml").config.tracing)


def folder(path: Path, **files: str) -> Path:
    """Make a folder with these files; `_` stands for `-` in their names."""
    path.mkdir()
    for name, text in files.items():
        (path / name.replace("_", "-")).write_text(text)
    return path


OTLP = {"tracing_protocol": "http/protobuf"}


def mounted(place: Path, files: dict[str, str]) -> str:
    """Mount a ConfigMap, config-observability if a file is one of its own; return the setting that names it."""
    newer = any(name.startswith(("tracing_", "metrics_")) for name in files)
    made = folder(place / ("config-observability" if newer else "config-tracing"), **files)
    return f"{'observability_' if newer else ''}folder: {made}"


def test_off_is_the_default() -> None:
    """And so is a backend of none with any other keys. The rate may come from the environment, as text."""
    assert settings("") is None
    assert settings("backend: none, endpoint: 'http://collector/', sample_rate: 1") is None
    loaded = load(BASE, filename="inbound.yaml", environ={"INBOUND__TRACING__SAMPLE_RATE": "0.25"})
    assert loaded.config.tracing.sample_rate == 0.25


@pytest.mark.parametrize(
    ("section", "endpoint"),
    [
        ("backend: otlp", "http://127.0.0.1:4318/v1/traces"),
        ("backend: zipkin", "http://127.0.0.1:9411/api/v2/spans"),
        ("backend: otlp, endpoint: 'https://collector:4318'", "https://collector:4318/v1/traces"),
        ("backend: zipkin, endpoint: 'http://zipkin/'", "http://zipkin/api/v2/spans"),
        ("backend: otlp, endpoint: 'http://collector/else?key=1'", "http://collector/else?key=1"),
    ],
)
def test_a_collector_has_its_usual_path(section: str, endpoint: str) -> None:
    """Unless another one is given."""
    found = settings(section)

    assert found is not None
    assert found.endpoint == endpoint


def test_headers_come_from_files_and_are_told_to_nobody(tmp_path: Path) -> None:
    """Neither they nor a query are in what is shown."""
    (tmp_path / "token").write_text("Bearer swordfish\n")
    found = settings(
        f"backend: otlp, endpoint: 'http://c/v1?key=tuna', headers: {{authorization: {{file: {tmp_path / 'token'}}}}}"
    )

    assert found is not None
    assert found.headers == {"authorization": "Bearer swordfish"}
    assert "swordfish" not in repr(found)
    assert "tuna" not in repr(found)
    assert client_of(found, 1.0).shown == "http://c/v1"


def test_a_configuration_is_shown_without_what_lets_us_in() -> None:
    """All headers, and the parts of the URL that look like secrets; the path of a file is none."""
    headers = "headers: {x-team: swordfish, key: {file: /run/key}}"
    text = f"tracing: {{backend: otlp, endpoint: 'http://c/?token=tuna&a=1', {headers}}}\n{BASE}"
    shown = render(load(text, filename="inbound.yaml").config)

    assert "swordfish" not in shown
    assert "tuna" not in shown
    assert "endpoint: http://c/?token=***&a=1" in shown
    assert "file: /run/key" in shown


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        ("backend: jaeger", "tracing.backend: need one of none, otlp, zipkin"),
        ("sample_rate: 2", "tracing.sample_rate: need a number from 0 (no trace) to 1 (every trace), got 2"),
        ("sample_rate: true", "tracing.sample_rate: need a number from 0"),
        ("endpoint: 'ftp://x'", "tracing.endpoint: need a URL"),
        ("endpoint: 'http://me:swordfish@x/'", "tracing.endpoint: holds a user or password"),
        ("timeout: 10m", "tracing.timeout: need at most 30s"),
        ("folder: /etc/config-tracing, backend: otlp", "tracing.backend: is set by the files in tracing.folder"),
        (
            "observability_folder: /o, sample_rate: 1",
            "tracing.sample_rate: is set by the files in tracing.observability_folder",
        ),
        ("service_name: ''", "tracing.service_name: need a name"),
    ],
)
def test_what_cannot_be_is_refused(section: str, problem: str) -> None:
    """With the key."""
    with pytest.raises(ConfigError) as raised:
        settings(section)

    assert problem in str(raised.value)
    assert "swordfish" not in str(raised.value)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        ({"_example": "backend: zipkin"}, None),
        ({"backend": "none", "zipkin_endpoint": "http://z/"}, None),
        (
            {"backend": "zipkin", "zipkin_endpoint": "http://z:9411/api/v2/spans\n"},
            ("zipkin", "http://z:9411/api/v2/spans", 0.1),
        ),
        (
            {"backend": "zipkin", "zipkin_endpoint": "http://z", "sample_rate": "0.5"},
            ("zipkin", "http://z/api/v2/spans", 0.5),
        ),
        (
            {"backend": "zipkin", "zipkin_endpoint": "http://z", "debug": "true"},
            ("zipkin", "http://z/api/v2/spans", 1.0),
        ),
        ({"enable": "true", "zipkin_endpoint": "http://z"}, ("zipkin", "http://z/api/v2/spans", 0.1)),
        ({"metrics_protocol": "prometheus", "runtime_profiling": "enabled"}, None),
        ({"tracing_protocol": "none"}, None),
        (
            {**OTLP, "tracing_endpoint": "http://c:4318/v1/traces", "tracing_sampling_rate": "1"},
            ("otlp", "http://c:4318/v1/traces", 1.0),
        ),
        ({**OTLP, "tracing_endpoint": "c:4318"}, ("otlp", "http://c:4318/v1/traces", 0.0)),
    ],
)
def test_configmaps_are_read_as_knative_reads_them(
    tmp_path: Path, files: dict[str, str], expected: tuple[str, str, float] | None
) -> None:
    """config-tracing and config-observability with their defaults; what is not about tracing is left alone."""
    found = settings(mounted(tmp_path, files))

    assert (found and (found.backend, found.endpoint, found.sample_rate)) == expected


def test_config_observability_wins_where_it_says_something(tmp_path: Path) -> None:
    """Else config-tracing counts."""
    older = folder(tmp_path / "config-tracing", backend="zipkin", zipkin_endpoint="http://z")
    newer = folder(tmp_path / "config-observability", metrics_protocol="none")
    both = f"folder: {older}, observability_folder: {newer}"
    before = settings(both)
    (newer / "tracing-protocol").write_text("none")

    assert before is not None
    assert (before.backend, settings(both)) == ("zipkin", None)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"backend": "stackdriver"}, "config-tracing/backend: need none or zipkin"),
        ({"backend": "zipkin"}, "config-tracing/zipkin-endpoint: is missing or empty, and backend zipkin needs it"),
        ({"backend": "zipkin", "zipkin_endpoint": "ftp://z"}, "config-tracing/zipkin-endpoint: need a URL"),
        ({"sample_rate": "1.5"}, "config-tracing/sample-rate: need a number from 0 (no trace) to 1"),
        ({"sample_rate": "nan"}, "config-tracing/sample-rate: need a number from 0 (no trace) to 1"),
        ({"debug": "perhaps"}, "config-tracing/debug: need true or false"),
        (
            {"tracing_protocol": "grpc", "tracing_endpoint": "http://c:4317"},
            "config-observability/tracing-protocol: grpc is not spoken here",
        ),
        ({"tracing_protocol": "udp"}, "tracing-protocol: need none or http/protobuf"),
        (OTLP, "tracing-endpoint: is missing or empty"),
        (
            {"tracing_protocol": "none", "tracing_sampling_rate": "x"},
            "tracing-sampling-rate: need a number from 0 (no trace) to 1",
        ),
    ],
)
def test_a_wrong_value_of_a_folder_is_named_with_its_file(tmp_path: Path, files: dict[str, str], problem: str) -> None:
    """It is the configuration that is refused."""
    with pytest.raises(ConfigError) as raised:
        settings(section := mounted(tmp_path, files))

    assert str(raised.value).startswith(f"tracing.{section.partition(':')[0]}: ")
    assert problem in str(raised.value)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With what to do."""
    with pytest.raises(ConfigError, match="cannot be read: No such file or directory; mount the ConfigMap there"):
        settings(f"folder: {tmp_path / 'missing'}")


def test_a_mounted_configmap_is_read_through_its_link(tmp_path: Path) -> None:
    """As the kubelet makes it."""
    mounted = tmp_path / "config-tracing"
    mounted.mkdir()
    folder(mounted / "..1", backend="zipkin", zipkin_endpoint="http://one")
    folder(mounted / "..2", backend="zipkin", zipkin_endpoint="http://two")
    for name in ("backend", "zipkin-endpoint"):
        os.symlink(f"..data/{name}", mounted / name)
    found = []
    for number in (1, 2):
        os.symlink(f"..{number}", mounted / "..new")
        os.replace(mounted / "..new", mounted / "..data")
        made = settings(f"folder: {mounted}")
        assert made is not None
        found.append(made.endpoint)

    assert found == ["http://one/api/v2/spans", "http://two/api/v2/spans"]


def test_the_folders_are_part_of_what_is_configured() -> None:
    """So that they are watched: see docs/reload.md."""
    text = f"tracing: {{folder: /t, observability_folder: /o, headers: {{key: {{file: /h}}}}, ca_file: /ca}}\n{BASE}"

    assert depends_on(load(text, filename="inbound.yaml").config)["tracing"] == tuple(
        map(Path, ("/ca", "/h", "/o", "/t"))
    )


def test_a_plan_needs_what_is_mounted(tmp_path: Path) -> None:
    """At the start and at each change: a wrong value is refused before anything of it is done."""
    mounted = folder(tmp_path / "config-tracing", backend="zipkin")
    loaded = load(f"tracing: {{folder: {mounted}}}\n{BASE}", filename="inbound.yaml")

    with pytest.raises(ConfigError, match=r"inbound.yaml:1: tracing.folder: .*/zipkin-endpoint: is missing"):
        plan_channels(loaded)


def run(program: str) -> str:
    """Run a program in a new process. Returns its output."""
    command = [sys.executable, "-c", textwrap.dedent(program)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=Path(__file__).parent.parent.parent.parent
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.slow
def test_off_nothing_of_opentelemetry_is_imported() -> None:
    """Neither by the commands nor by channels that process batches, so there is nothing that a span could be made of."""
    printed = run("""
        import sys
        import inbound.cli.run.run, inbound.cli.tools.publish
        from inbound.config import load
        from inbound.processors.simple import SimpleProcessor
        from inbound.testing.world import World
        from inbound.observe.tracing.process import ProcessTracing
        from tests.processors.dispatch.dispatch_stage import Stage, event_headers
        from tests.http_receiver import Receiver
        tracing = ProcessTracing()
        tracing.configure(load("channels: {orders: {topics: [orders], group: g, processor: {type: simple, options: "
            "{sinks: [log]}}}}", filename="inbound.yaml").config.tracing)
        receiver, commits = Receiver(), []
        for processor, options in (
            (None, {}), (SimpleProcessor(), {"sinks": ["log", {"type": "http", "url": receiver.url}]}),
        ):
            world = World()
            world.tracing = tracing
            world.kafka.create_topic("orders", 1)
            world.join("a", processor, options=options)
            for number in range(3):
                world.kafka.publish("orders", 0, [b"a"], headers=event_headers(str(number)))
                world.run(5)
            commits.append(world.commits())
        processor.close()
        receiver.close()
        stage = Stage()
        stage.world.tracing = tracing
        stage.publish("1", "2")
        stage.start()
        stage.run(5)
        commits.append(stage.world.commits())
        print(commits, len(receiver.requests), [
            name for name in sys.modules
            if name.startswith("opentelemetry") or name in ("inbound.observe.tracing.spans", "inbound.observe.tracing.spans")
        ])
    """)

    assert printed == "[{0: 3}, {0: 3}, {0: 2}] 3 []"


@pytest.mark.slow
def test_without_the_extra_the_error_says_what_to_install() -> None:
    """Not when the first span is made, but when the configuration is looked at."""
    printed = run("""
        import sys
        class Hidden:
            def find_spec(self, name, path=None, target=None):
                if name.startswith("opentelemetry"):
                    raise ModuleNotFoundError(name)
        sys.meta_path.insert(0, Hidden())
        from inbound.config import TracingConfig
        from inbound.errors import ConfigError
        from inbound.observe.tracing.settings import settings_of
        try:
            settings_of(TracingConfig(backend="otlp"))
        except ConfigError as error:
            print(error)
    """)

    assert printed == (
        "tracing.backend otlp: OpenTelemetry is not installed (opentelemetry.sdk.trace is missing); install it with: pip "
        "install 'inbound-kafka[tracing]', or set tracing.backend to none"
    )
