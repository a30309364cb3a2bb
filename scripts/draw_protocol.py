"""Draw the pictures of docs/protocol.md and docs/architecture.md into docs/diagrams/ (`make docs`)."""

from __future__ import annotations

from scripts.diagrams import (
    Diagram,
    Ends,
    Freezes,
    Message,
    Note,
    Step,
    arrow,
    box,
    box_height,
    label,
    picture,
    sequence,
)
from scripts.made_tables import DOCS

FOLDER = DOCS / "diagrams"
A, B, ZK, KAFKA, COMMAND = "consumer A", "consumer B", "ZooKeeper", "Kafka", "offsets reset"

CLAIM = Diagram(
    "How a partition is claimed, read, and committed",
    (A, ZK, KAFKA),
    (
        Message(A, ZK, "who is there, who owns what (hints only)"),
        Message(ZK, A, "gate open, epoch 4, no owner", kind="answer"),
        Message(
            A, ZK, "claim, one transaction:",
            ("check the gate is as it was read", "set the epoch, if it is still 4", "create the owner node, ephemeral"),
        ),
        Message(ZK, A, "done: the epoch is 5", kind="answer"),
        Message(A, ZK, "only now: where did the last one stop?"),
        Message(ZK, A, "offset 120", kind="answer"),
        Message(A, KAFKA, "fetch from 120 on"),
        Message(KAFKA, A, "records 120 to 179", kind="answer"),
        Note(A, ("ledger: begun 120 to 179, epoch 5", "on_next_batch, advance()", "ledger: done")),
        Message(A, ZK, "commit, one transaction:", ("check the epoch is 5", "set the offset to 180")),
        Message(ZK, A, "done", kind="answer"),
        Note(A, ("ledger: settled", "on_batch_processed")),
    ),
)  # fmt: skip

TAKE_OVER = Diagram(
    "A consumer is killed, another takes over",
    (A, ZK, B),
    (
        Note(A, ("owns orders/3 under epoch 5,", "180 is committed,", "has 180 to 239 in hand")),
        Ends(A, "SIGKILL"),
        Note(ZK, ("hears nothing for the session's", "time-out (10 s), then deletes", "A's id node and owner nodes")),
        Message(ZK, B, "watch: a member is gone", kind="answer"),
        Note(B, ("computes the shares again:", "orders/3 is for B now")),
        Message(
            B, ZK, "claim, one transaction:",
            ("check the gate", "set the epoch, if it is still 5", "create the owner node"),
        ),
        Message(ZK, B, "done: the epoch is 6", kind="answer"),
        Message(B, ZK, "where did the last one stop?"),
        Message(ZK, B, "offset 180", kind="answer"),
        Note(B, ("reads from 180: what A had in hand", "is read twice, nothing is lost")),
    ),
)  # fmt: skip

ZOMBIE = Diagram(
    "A consumer that was frozen past its session cannot commit",
    (A, ZK, B),
    (
        Note(A, ("epoch 5, in the callback", "with 180 to 239")),
        Freezes(A, "frozen: SIGSTOP, a paused VM, swap"),
        Note(ZK, ("A's session expires;", "its owner node is deleted")),
        Message(B, ZK, "claim: the epoch becomes 6"),
        Message(ZK, B, "done; offset 180", kind="answer"),
        Message(B, ZK, "commit: check epoch 6, set 240"),
        Message(ZK, B, "done", kind="answer"),
        Step("A wakes up, and believes that it is the owner"),
        Note(A, ("its own clock says that the session", "is in doubt: batch.lost is set,", "nothing new is delivered")),
        Message(A, ZK, "commit: check epoch 5, set 240"),
        Message(ZK, A, "refused, as a whole: the epoch is 6", kind="refused"),
        Note(A, ("drops orders/3 without a commit;", "ledger: fenced; on_exception", "gets PartitionLostError")),
    ),
)

RESET = Diagram(
    "The six steps of a reset",
    (COMMAND, ZK, "members A, B, ..."),
    (
        Step("1  RefMapped"),
        Message(COMMAND, ZK, "submit: a node with what is wanted"),
        Note(ZK, ("any process may carry it out;", "each step is one transaction on", "this node at the version read")),
        Step("2  AcquireDataPlaneServices: first of its group, and it can be done"),
        Message(COMMAND, ZK, "close the gate of group and topic"),
        Message(ZK, "members A, B, ...", "watch: the gate is closed", kind="answer"),
        Step("3  ConsumerGroupsStopped"),
        Message("members A, B, ...", ZK, "finish the batch in hand: commit"),
        Message("members A, B, ...", ZK, "release: delete the owner node"),
        Note(COMMAND, ("no owner is left; old offsets", "are exact, targets are stored")),
        Step("4  OffsetsUpdated"),
        Message(COMMAND, ZK, "one transaction:", ("set all offsets, raise all epochs,", "note that it is done")),
        Step("5  ConsumerGroupsStarted"),
        Message(COMMAND, ZK, "open the gate"),
        Message("members A, B, ...", ZK, "claim, read the offset, on_reset"),
        Step("6  Succeeded: every partition has an owner again"),
    ),
)

SEQUENCES = {"claim": CLAIM, "take-over": TAKE_OVER, "zombie": ZOMBIE, "reset": RESET}


def channel() -> str:
    """Return the way of a record through a channel."""
    drawn: list[str] = []
    wide, high = 190, 0.0
    upper = (
        ("Kafka", "partitions of a topic"),
        ("reader", "one thread, one client"),
        ("partition buffers", "bounded for the channel"),
        ("workers", "a partition at a time"),
    )
    lower = (
        ("on_batch_processed", "after the commit"),
        ("ZooKeeper", "check epoch, set offset"),
        ("committer", "many partitions at once"),
        ("on_next_batch", "your processor"),
    )
    left, step, top, bottom = 20, 260, 24, 190
    for number, lines in enumerate(upper):
        drawn += box(left + step * number, top, wide, lines)
        high = box_height(lines)
        if number:
            drawn += arrow(
                left + step * (number - 1) + wide + 4, top + high / 2, left + step * number - 4, top + high / 2
            )
    for number, lines in enumerate(lower):
        drawn += box(left + step * number, bottom, wide, lines)
        if number:
            drawn += arrow(
                left + step * number - 4, bottom + high / 2, left + step * (number - 1) + wide + 4, bottom + high / 2
            )
    down = left + step * 3 + wide / 2
    drawn += arrow(down, top + high + 4, down, bottom - 4)
    below = bottom + high + 64
    drawn += box(left + step, below, 2 * step + wide, ("the ledger: delivered, answered, committed",), "note")
    committer = left + step * 2 + wide / 2
    for x, text in ((down - 45, "begun"), (down + 45, "done"), (committer, "settled")):
        drawn += arrow(x, bottom + high + 4, x, below - 4, "answer")
        drawn.append(label(x, (bottom + high + below) / 2 + 4, text, "dim halo"))
    return picture("The way of a record through a channel", 2 * left + step * 3 + wide, below + 48, drawn)


def drawn() -> dict[str, str]:
    """Return the pictures, by the names of their files."""
    return {**{f"{name}.svg": sequence(one) for name, one in SEQUENCES.items()}, "channel.svg": channel()}


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for name, text in drawn().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
