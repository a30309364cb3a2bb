"""What `inbound spark validate` prints, compared whole."""

from __future__ import annotations

from inbound.cli.shared.proof_text import shown
from inbound.proof.model import FormerTopic, PartitionKey, Verdict
from inbound.proof.words import headline
from tests.proof.made_proof import NOON, finding, partition, proof, repeated

LOST = finding("lost", 4711, 4713, cause="host-1 (epoch 1) went from 4711 to 4713; nobody was ever handed these")


def test_proven_with_what_a_crash_repeats() -> None:
    """The first line says all that matters; repeats within the promise are told, and are no anomaly."""
    text = shown(proof(partition(0), partition(1, repeated())), width=100)

    assert text.splitlines() == [
        "PROVEN  group orders-svc, topic orders: 196,000 offsets of 2 partitions delivered and committed, none lost; "
        "400 repeated, as at-least-once allows",
        "exact mode (each offset of the log), 2025-01-31 13:00:00 UTC, took 12.3 s",
        "",
        "PARTITION  PROVEN       COMMITTED  LOG END  LAG  REPEATED  IN FLIGHT  VERDICT",
        "        1  0 to 97,999     98,000   98,500  500       400        200  proven",
        "        0  0 to 97,999     98,000   98,500  500         0        200  proven",
        "No offsets lost, duplicate, skipped, reordered, unfenced, over-window, beyond-end, lost-to-retention, unclaimed, "
        "given-up, dead-lettered, passed-over, jumped, uncommitted.",
        "",
        "Findings:",
        "  repeated: orders/1 offsets 80000 to 80399 (400 records): host-2 (epoch 2) died before it committed",
        "    these; host-1 (epoch 3) was handed them again",
        "What to do:",
        "  repeated (redelivered because it had not been committed, as at-least-once allows): nothing, if the",
        "    processor can take an event twice",
    ]


def test_anomalies_come_first_and_what_is_missing_last() -> None:
    """One partition is bad, one not provable, one fine, in this order; without a width every column is there."""
    bad = partition(0, repeated(), LOST, verdict=Verdict.ANOMALIES)
    open_ = partition(2, verdict=Verdict.NOT_PROVABLE, missing=("run a lacks lines 7 to 9: bring a-0002.jsonl",))

    text = shown(proof(partition(1), open_, bad, missing=("group other has no ledger",)))

    verdict, tables, findings, missing = text.split("\n\n")
    assert (
        verdict.splitlines()[0]
        == "ANOMALIES  group orders-svc, topic orders: 2 lost in 1 of 3 partitions; 1 not provable"
    )
    assert [" ".join(line.split()) for line in tables.splitlines()] == [
        "PARTITION PROVEN COMMITTED LOG END LAG LOST DUPLICATE REPEATED SKIPPED REORDERED UNFENCED OVER WINDOW BEYOND END "
        "RETENTION UNCLAIMED GIVEN UP DEAD-LETTERED PASSED OVER JUMPED UNCOMMITTED IN FLIGHT VERDICT",
        "0 0 to 97,999 98,000 98,500 500 2 0 400 0 0 0 0 0 0 0 0 0 0 0 0 200 anomalies",
        "2 0 to 97,999 98,000 98,500 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 200 not provable",
        "1 0 to 97,999 98,000 98,500 500 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 200 proven",
    ]
    assert [line.split(":")[0] for line in findings.splitlines()] == [
        "Findings",
        "  lost",
        "  repeated",
        "What to do",
        "  lost (committed past, in the log, and never delivered)",
        "  repeated (redelivered because it had not been committed, as at-least-once allows)",
    ]
    assert missing.splitlines() == [
        "Missing for a proof:",
        "  group other has no ledger",
        "  orders/2: run a lacks lines 7 to 9: bring a-0002.jsonl",
    ]


def test_not_provable() -> None:
    """Where evidence is missing, the first line says so, and that nothing wrong was found."""
    one = partition(0, verdict=Verdict.NOT_PROVABLE, start=None, proven=None, committed=None, missing=("no ledger",))

    lines = shown(proof(one, mode="quick", continued=True), width=80).splitlines()

    assert lines[0] == (
        "NOT PROVABLE  group orders-svc, topic orders: nothing wrong was found, "
        "but the evidence of 1 of 1 partition is not complete"
    )
    assert lines[1].startswith("quick mode (ranges of the ledger), from where the last proof ended, ")
    assert lines[3:5] == [
        "PARTITION  PROVEN  COMMITTED  LOG END  LAG  IN FLIGHT  VERDICT",
        "        0  -               -   98,500    -        200  not provable",
    ]


def test_what_was_left_out_on_purpose_is_not_among_what_was_processed() -> None:
    """Ten records raised and were skipped, and a reset jumped over 900: the first line, the table and the findings say so."""
    skipped, jumped = finding("given-up", 0, 10), finding("jumped", 100, 1000)
    one = partition(0, skipped, jumped, proven=1000, left_out=((0, 10), (100, 1000)))

    lines = shown(proof(one), width=120).splitlines()

    assert lines[0] == (
        "PROVEN  group orders-svc, topic orders: 90 offsets of 1 partition delivered and committed, none lost; "
        "10 given up (on_error: skip); 900 jumped over (by a reset, on_claim or on_truncation)"
    )
    assert lines[3:5] == [
        "PARTITION  PROVEN    COMMITTED  LOG END  LAG  GIVEN UP  JUMPED  IN FLIGHT  VERDICT",
        "        0  0 to 999     98,000   98,500  500        10     900        200  proven",
    ]


def test_partitions_that_no_consumer_ever_owned() -> None:
    """The verdict has a word for it, also if the rest is proven."""
    never = partition(
        1, finding("unclaimed", 0, 500), verdict=Verdict.UNCLAIMED, claims=(), start=None, proven=None, committed=None
    )

    text = shown(proof(partition(0), never))

    assert text.startswith(
        "NEVER CLAIMED  group orders-svc, topic orders: 500 offsets of 1 of 2 partitions that no consumer ever owned\n"
    )
    assert int(proof(partition(0), never).verdict) == 4


def test_unprocessed_offsets_are_in_the_first_line_of_every_verdict() -> None:
    """And so do the partitions whose own verdict is another: who reads one line must not take the rest for proven."""
    given_up = partition(0, finding("given-up", 0, 10), left_out=((0, 10),))
    open_ = partition(1, verdict=Verdict.NOT_PROVABLE, missing=("no ledger",))
    never = partition(2, finding("unclaimed", 0, 500), verdict=Verdict.UNCLAIMED)
    lost = partition(3, LOST, verdict=Verdict.ANOMALIES)
    whom, skipped = "group orders-svc, topic orders", "10 given up (on_error: skip)"

    first = [
        headline(proof(*some)) for some in ([given_up, open_], [given_up, open_, never], [given_up, open_, never, lost])
    ]

    assert first == [
        f"{whom}: nothing wrong was found, but the evidence of 1 of 2 partitions is not complete; {skipped}",
        f"{whom}: 500 offsets of 1 of 3 partitions that no consumer ever owned; 1 not provable; {skipped}",
        f"{whom}: 2 lost in 1 of 4 partitions; 1 never claimed; 1 not provable; {skipped}",
    ]


def test_a_recreated_topic_is_named() -> None:
    """With what is not judged any more."""
    former = FormerTopic(epoch=7, start=0, committed=1200, handed_to=1250, wall=NOON)

    lines = shown(proof(partition(0, former=(former,))), width=400).splitlines()

    assert lines[0].endswith(
        "none lost; 1 partition of a recreated topic, whose deleted predecessor is no longer judged"
    )
    assert lines[-2:] == [
        "Recreated:",
        "  orders/0: the topic was deleted and recreated; epoch 7 began the new one (2025-01-31 12:00:00 UTC). Of the "
        "deleted one 0 to 1200 was committed, delivered up to 1250. What stood behind that, and whether its log had more than "
        "was delivered, is not judged any more",
    ]


def test_quick_mode_says_at_most_how_many() -> None:
    """Without the log it is unknown which offsets of a range have a record."""
    one = partition(0, finding("skipped", 10, 30, offsets=None), verdict=Verdict.ANOMALIES)

    text = shown(proof(one, mode="quick"))

    assert "orders: <=20 skipped in 1 of 1 partition" in text
    assert "  skipped: orders/0 offsets 10 to 29 (records not counted): " in text


def test_much_is_shortened_and_the_rest_named() -> None:
    """A thousand partitions and findings do not flood a terminal."""
    parts = [partition(i, finding("duplicate", i, i + 1), verdict=Verdict.ANOMALIES) for i in range(1000)]

    lines = shown(proof(*parts), rest="out/proof.json").splitlines()

    assert len(lines) < 80
    assert "and 960 more, less urgent ones: in out/proof.json" in lines
    assert "  and 980 more in out/proof.json" in lines


def test_several_groups_and_topics_are_told_apart() -> None:
    """Columns name group and topic where there are more than one."""
    parts = [partition(0, repeated(), key=PartitionKey(group, group * 2, 0)) for group in ("a", "b")]

    text = shown(proof(*parts), width=120)

    assert text.startswith("PROVEN  2 groups, 2 topics: ")
    assert [line.split()[:3] for line in text.splitlines()[3:6]] == [
        ["GROUP", "TOPIC", "PARTITION"],
        ["a", "aa", "0"],
        ["b", "bb", "0"],
    ]
    assert "  repeated: b bb/0 offsets 80000 to 80399 (400 records): " in text


def test_a_hostile_name_cannot_steer_the_terminal() -> None:
    """Consumers name themselves: escapes in what they say are shown as question marks. Only the verdict is coloured."""
    one = partition(0, finding("lost", 1, 2, cause="\033[2Jgone\a\n\rPROVEN"), verdict=Verdict.ANOMALIES)

    text = shown(proof(one), colour=True)

    assert [part.split("m")[0] for part in text.split("\033[")[1:]] == ["1;31", "0"]
    assert "  lost: orders/0 offset 1 (1 record): ?[2Jgone? PROVEN" in text.splitlines()


def test_nothing_to_judge() -> None:
    """Without a partition there is no table, and what is missing says why."""
    text = shown(proof(missing=("group orders-svc has no ledger in ./ledger",)))

    assert text.startswith("NOT PROVABLE  ")
    assert text.endswith("Missing for a proof:\n  group orders-svc has no ledger in ./ledger")


def test_what_was_asked_for_again_is_no_finding() -> None:
    """A revert explains its own repeat; it is printed, and the verdict is as without it."""
    text = shown(proof(partition(0, explained=((5, 10), (20, 30)))))

    assert text.startswith("PROVEN  ")
    assert "15 more were redelivered on request: " in text
    assert "Findings" not in text
