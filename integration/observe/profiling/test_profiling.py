"""Profiles of a real consumer under load, as people look at them: with Go's tool, and in a browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from integration.admin.browser import Browser
from integration.harness import Scene, Scenes
from tests.observe.profiling.pprof_message import read, samples
from tests.waiting import until

TOKEN = "t0ken"
#: Where Go is installed by its own archive, which does not put it on the path.
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")


@pytest.fixture
def scene(scenes: Scenes) -> Scene:
    """A consumer whose processor computes, with a listener of profiles."""
    one = scenes()
    (one.folder / "token").write_text(TOKEN)
    profiling = f'profiling: {{listen: "127.0.0.1:0", token_file: {one.folder / "token"}}}\n'
    one.write_config(reader="{max_batch_records: 20}")  # what is in hand at the end is soon done
    text = one.config.read_text()
    text = re.sub(r"    processor: .*", '    processor: {type: "busy:Busy"}', text)
    one.config.write_text(profiling + text)
    return one


def address(scene: Scene, process: subprocess.Popen[bytes]) -> str:
    """Return where a process listens for who wants profiles, as its log says."""

    def said() -> list[str]:
        return re.findall(r"profiling: (http://\S+/debug/pprof/)", scene.log(process))

    return until(said, 120, lambda: f"it says where profiles are taken: {scene.log(process)[-2000:]}")[-1]


def fetch(url: str) -> bytes:
    """Return what is there; raises HTTPError where that is not 200."""
    request = Request(url, headers={"Authorization": f"Bearer {TOKEN}"})
    with urlopen(request, timeout=120) as answer:
        body: bytes = answer.read()
    return body


def at_work(scene: Scene) -> subprocess.Popen[bytes]:
    """Start a consumer, and load that it is busy with."""
    process = scene.start()
    until(lambda: scene.all_owned(1), 120, "it owns all")
    scene.start_load(60.0)
    until(lambda: (scene.offset(0) or 0) > 10, 120, "it works")
    return process


def test_the_processors_function_is_in_the_profile_and_in_the_flame_graph(
    scene: Scene, browser: Browser, tmp_path: Path
) -> None:
    """With CPU time, in the threads of its channel; the end of the process ends a profile of five minutes."""
    process = at_work(scene)
    url = address(scene, process)

    message = read(fetch(f"{url}profile?seconds=2"))

    kinds = [message.string_table[kind.type] for kind in message.sample_type]
    assert kinds == ["samples", "cpu", "wall"]
    assert message.duration_nanos >= 1_900_000_000
    # All its stacks together: of a thread that waited for the interpreter one of them has no CPU time.
    busy: Counter[str] = Counter()
    for (stack, labels), values in samples(message).items():
        if any(place.startswith("busy.Busy.weigh ") for place in stack):
            busy[dict(labels)["channel"]] += values[1]
    assert set(busy) == {"orders"}
    assert busy["orders"] > 0
    # The parts of inbound are told apart, by their threads.
    threads = {dict(labels)["thread"] for _, labels in samples(message)}
    assert any(thread.startswith("orders-worker-") for thread in threads)
    assert {"committer", "controller"} <= threads

    page = tmp_path / "flame.html"
    page.write_bytes(fetch(f"{url}flame?seconds=2"))
    browser.open(page)
    look_at_the_flame_graph(browser, process.pid)

    asked = subprocess.Popen(
        ("curl", "-sS", "-H", f"Authorization: Bearer {TOKEN}", "-o", str(scene.folder / "half.pb.gz"), f"{url}profile?seconds=300")
    )  # fmt: skip
    try:
        until(lambda: b"profiling.sampler.Sampler" in dump_of(url), 60, "the profile is being taken")
        scene.end_load()
        assert scene.stop(process) == 0
        assert asked.wait(timeout=60) == 0
    finally:
        asked.kill()
        asked.wait()
    assert 0 < read((scene.folder / "half.pb.gz").read_bytes()).duration_nanos < 300 * 10**9


@pytest.mark.thorough("Go builds its tool, minutes; in `make test` another decoder reads the same bytes")
@pytest.mark.skipif(GO is None, reason="Go is not installed")
def test_gos_tool_shows_the_processors_function(scene: Scene, tmp_path: Path) -> None:
    """As users of Go look at profiles."""
    process = at_work(scene)
    file = tmp_path / "profile.pb.gz"
    file.write_bytes(fetch(f"{address(scene, process)}profile?seconds=2"))
    shown = top(tmp_path, str(file))
    assert re.search(r"(?m)^Type: cpu$", shown), shown
    assert re.search(r"(?m)%\s+busy\.Busy\.weigh$", shown), shown
    # A machine that is frozen at its end makes it longer than was asked for.
    seconds = read(file.read_bytes()).duration_nanos / 1e9
    assert f"looks in {seconds:.2f} s" in top(tmp_path, str(file), "-comments")


def top(folder: Path, source: str, form: str = "-top") -> str:
    """Return what `go tool pprof` prints of a profile. It may fetch nothing; the first time Go builds it, which takes a while."""
    assert GO is not None
    environment = {
        **os.environ, "GOPROXY": "off", "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "PPROF_TMPDIR": str(folder),
        "HOME": os.environ.get("HOME", str(folder)), "GO111MODULE": "off",
    }  # fmt: skip
    ran = subprocess.run(
        (GO, "tool", "pprof", form, source), env=environment, cwd=folder, capture_output=True, text=True, timeout=350,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def dump_of(url: str) -> bytes:
    """Return where the threads of a process are."""
    return fetch(f"{url}goroutine?debug=2")


def look_at_the_flame_graph(browser: Browser, pid: int) -> None:
    """Bars have a size and a colour; a press looks closer, a search marks, and nothing is complained of."""
    assert browser.run("document.querySelector('h1').innerText").startswith(f"CPU of process {pid} on ")
    bars = "[...document.querySelectorAll('#graph button')]"
    name = "one.ariaLabel"
    wide = f"{bars}.find(one => {name} == 'busy.Busy.weigh')?.getBoundingClientRect().width || 0"
    before, whole = browser.run(wide), browser.run("document.querySelector('#graph').clientWidth")
    assert 0 < before < whole
    colours = f"new Set({bars}.map(one => getComputedStyle(one).backgroundColor)).size"
    assert browser.run(colours) > 1

    browser.run(f"{bars}.find(one => {name} == 'busy.Busy.weigh').click()")

    assert browser.run(f"Math.abs(({wide}) - {whole}) < 2")
    assert browser.run("document.querySelector('#told').innerText").startswith("busy.Busy.weigh: ")
    assert browser.run(f"{bars}[0].classList.contains('above')"), "the way there is kept, and leads back"
    browser.run("document.querySelector('#whole').click()")
    assert browser.run(wide) == before
    browser.run("document.querySelector('#find').value = 'weigh'")
    browser.run("document.querySelector('#find').dispatchEvent(new Event('input'))")
    assert browser.run(f"{bars}.some(one => one.classList.contains('faint'))")
    assert float(browser.run("document.querySelector('#found').innerText").split()[0]) > 0
    browser.run(
        "document.querySelector('#type').value = 2; document.querySelector('#type').dispatchEvent(new Event('change'))"
    )
    assert browser.run(f"{bars}.length") > 5, "time that threads waited"
    assert browser.run("document.documentElement.scrollWidth <= innerWidth")
    assert "busy.Busy.weigh" in browser.run("document.querySelector('table').innerText")
    assert browser.problems == []
