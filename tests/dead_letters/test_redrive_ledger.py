"""The ledger of redrives: what survives, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from inbound.dead_letters.redrive_ledger import RedriveLedger
from inbound.errors import LedgerError
from inbound.testing.clock import ManualClock

Open = Callable[..., RedriveLedger]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "orders.dead.jsonl"


def opened(
    path: Path, topic: str = "orders.dead", topic_id: str | None = "id-1", *, write: bool = True
) -> RedriveLedger:
    return RedriveLedger(path, topic, topic_id, ManualClock(), write=write)


def written(path: Path) -> None:
    """Write a ledger with one letter sent, and one refused."""
    ledger = opened(path)
    ledger.note((0, 17), "sent", "topic orders", "orders/3/991")
    ledger.note((0, 18), "refused", "topic orders", "too large")
    ledger.close()


def test_what_was_sent_is_known_the_next_time(path: Path) -> None:
    """What was refused is tried again."""
    written(path)
    again = opened(path)
    again.note((1, 2), "sent", "subscription orders.billing")
    again.close()

    assert opened(path, write=False).done == {(0, 17): "topic orders", (1, 2): "subscription orders.billing"}


def test_each_line_says_which_where_when_and_what_came_of_it(path: Path) -> None:
    """JSON that other programs read, with a checksum."""
    written(path)
    header, sent, refused = path.read_text().splitlines()

    assert header.startswith('{"v":1,"kind":"header","topic":"orders.dead","topic_id":"id-1","crc":')
    assert sent.startswith('{"kind":"sent","partition":0,"offset":17,"to":"topic orders","at":')
    assert '"why":"too large"' in refused


def test_a_line_that_was_cut_off_is_taken_away_and_its_letter_sent_again(path: Path) -> None:
    """The process was killed in the midst of it."""
    written(path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"kind":"sent","partition":0,"off')
    ledger = opened(path)
    ledger.note((5, 5), "sent", "topic orders")
    ledger.close()

    assert set(opened(path, write=False).done) == {(0, 17), (5, 5)}
    assert path.read_bytes().startswith(whole)


def test_two_redrives_do_not_write_one_ledger(path: Path) -> None:
    """The second gets an error; a reader is not kept out."""
    first = opened(path)
    with pytest.raises(LedgerError, match="another redrive writes it now"):
        opened(path)
    assert opened(path, write=False).done == {}
    first.close()
    opened(path).close()


@pytest.mark.parametrize(
    ("change", "topic", "topic_id", "said"),
    [
        (lambda data: data, "other", "id-1", "it is of topic orders.dead, not of other"),
        (lambda data: data, "orders.dead", "id-2", "topic orders.dead was deleted and recreated since"),
        (lambda data: data.replace(b'"offset":17', b'"offset":71'), "orders.dead", "id-1", ":2: the line is damaged"),
        (lambda data: b"notes\n", "orders.dead", "id-1", ":1: the line is damaged"),
    ],
    ids=["another topic", "recreated", "damaged", "no ledger"],
)
def test_a_ledger_that_speaks_of_other_letters_is_refused(
    path: Path, change: Callable[[bytes], bytes], topic: str, topic_id: str, said: str
) -> None:
    """Its offsets would leave out letters that were never sent."""
    written(path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(LedgerError) as raised:
        opened(path, topic, topic_id, write=False)

    assert said in str(raised.value)


def test_a_ledger_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    """Before anything is sent."""
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match=r"^redrive ledger .*/file/ledger: .*; check the disk"):
        opened(tmp_path / "file" / "ledger")


def test_a_file_that_is_no_ledger_stays_as_it_is(path: Path) -> None:
    """One line without an end looks like a ledger that was cut off at once; a device has no end."""
    path.parent.mkdir()
    path.write_text('{"orders": 17}')
    with pytest.raises(LedgerError, match="holds something else, which stays"):
        opened(path)
    assert path.read_text() == '{"orders": 17}'
    with pytest.raises(LedgerError, match="/dev/zero: is no file"):
        opened(Path("/dev/zero"))
