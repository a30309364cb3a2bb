"""The page of a proof: verdict, numbers, missing evidence, partitions, timelines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from inbound.proof.model import ANOMALIES, Finding, PartitionProof, Proof, Verdict
from inbound.proof.words import (
    KINDS,
    VERDICTS,
    amount,
    amounts,
    by_urgency,
    counted,
    explained_offsets,
    headline,
    kinds_told,
    missing_by_reason,
    moment,
    proven_offsets,
    recreated_topics,
)
from inbound.report.page import Cell, Markup, element, joined, legend, number, page, paragraphs, reasons, table, tiles
from inbound.report.style import COLOURS
from inbound.report.timeline import colours_of, key_of_marks, timeline

#: Unfolded partitions, the most urgent ones.
UNFOLDED = 12
#: Listed findings of one partition; the JSON has all.
MOST_FINDINGS = 100
#: Consumers that the legend names.
MOST_NAMED = 16


def proof_page(proof: Proof, rest: str = "proof.json") -> str:
    """Return the HTML document; `rest` names the file with all findings."""
    word = VERDICTS[proof.verdict]
    partitions = by_urgency(proof.partitions)
    return page(
        f"{word}: {headline(proof)}",
        element("span", word, class_=f"badge {_class(proof.verdict)}"),
        element("h1", headline(proof)),
        element("p", _circumstances(proof), class_="soft"),
        tiles(_tiles(proof)),
        _map(proof),
        reasons(
            "Missing for a proof",
            (
                element("li", element("span", f"{where}: ", class_="soft") if where else None, reason)
                for where, reason in missing_by_reason(proof)
            ),
        ),
        reasons("Recreated topics", (element("li", line, ".") for line in recreated_topics(proof.partitions))),
        reasons("What to do", _advice(proof)),
        _overview(proof, partitions) if partitions else None,
        _timelines(partitions, rest) if partitions else None,
        element("h2", "Words"),
        table(
            ("kind", "meaning", "anomaly"),
            ((kind, word.meaning, "yes" if kind in ANOMALIES else "no") for kind, word in KINDS.items()),
            caption="What the kinds of findings mean",
        ),
    )


def _circumstances(proof: Proof) -> str:
    how = (
        "Exact mode: each offset of the log was looked at"
        if proof.mode == "exact"
        else "Quick mode: the ledger's ranges were looked at, not the log's offsets"
    )
    since = ", going on from an earlier proof" if proof.continued else ""
    by = f", by {proof.writer}" if proof.writer else ""
    return f"{how}{since}. Made {moment(proof.made)} in {proof.seconds:,.1f} s{by}. Times are of the consumers' clocks, in UTC."


def _tiles(proof: Proof) -> Iterator[tuple[str, str, bool]]:
    yield "offsets proven", f"{proven_offsets(proof):,}", False
    yield "partitions" if len(proof.partitions) != 1 else "partition", f"{len(proof.partitions):,}", False
    told = amounts(proof.partitions)
    yield "lost", str(told.get("lost", 0)), "lost" in told
    for kind, some in told.items():
        if kind != "lost":
            yield kind, str(some), kind in ANOMALIES
    yield "lag", f"{sum(partition.lag or 0 for partition in proof.partitions):,}", False
    flying = sum(next_ - first for partition in proof.partitions for first, next_ in partition.in_flight)
    yield "in flight", f"{flying:,}", False


def _map(proof: Proof) -> Markup | None:
    if len(proof.partitions) < 2:
        return None
    squares = (
        element(
            "a",
            href=f"#{_anchor(one)}",
            title=f"{_name(one)}: {VERDICTS[one.verdict]}",
            aria_label=f"{_name(one)}: {VERDICTS[one.verdict]}",
            class_=_class(one.verdict),
        )
        for one in sorted(proof.partitions, key=lambda one: one.key)
    )
    return element("nav", squares, class_="map", aria_label="Partitions")


def _advice(proof: Proof) -> Iterator[Markup]:
    told = kinds_told(proof)
    for kind, word in KINDS.items():
        if told[kind] and (kind in ANOMALIES or kind == "unclaimed"):
            # The parts between backticks are code.
            advice = (element("code", part) if n % 2 else part for n, part in enumerate(word.advice.split("`")))
            yield element("li", element("b", kind), ": ", advice, ".")


def _overview(proof: Proof, partitions: Sequence[PartitionProof]) -> Markup:
    told = kinds_told(proof)
    kinds = [kind for kind in KINDS if told[kind] or kind == "lost"]
    groups = len({one.key.group for one in proof.partitions}) > 1
    asked = explained_offsets(partitions) > 0  # by a revert, a reset, or an answer for a part
    headers = (
        "partition", *(["group"] if groups else []), "verdict", "proven from", "proven to", "committed", "log end", "lag",
        *kinds, *(["asked for again"] if asked else []), "in flight", "claims",
    )  # fmt: skip
    rows: Iterable[list[Cell | str]] = (
        [
            Cell(element("a", _name(one), href=f"#{_anchor(one)}")),
            *([one.key.group] if groups else []),
            Cell(element("span", VERDICTS[one.verdict], class_=f"badge {_class(one.verdict)}")),
            *(number(value) for value in (one.start, one.proven, one.committed, one.log_end, one.lag)),
            *(_kind_cell(one.findings, kind) for kind in kinds),
            *([number(explained_offsets([one]))] if asked else []),
            number(sum(next_ - first for first, next_ in one.in_flight)),
            number(len(one.claims)),
        ]
        for one in partitions
    )
    caption = "Offsets are half open: “proven to” is the first offset that is not. Findings count offsets."
    return joined((element("h2", "Partitions"), table(headers, rows, caption=caption, tall=True)))


def _kind_cell(findings: Sequence[Finding], kind: str) -> Cell:
    found = amount(finding for finding in findings if finding.kind == kind)
    class_ = "zero" if not found.offsets else "hit" if kind in ANOMALIES else "noted"
    return Cell(str(found), found.offsets, class_)


def _timelines(partitions: Sequence[PartitionProof], rest: str) -> Markup:
    colours = colours_of(partitions)
    named = [
        (element("rect", class_=f"f{place % COLOURS}", x=0, y=2, width=14, height=10, rx=3), name)
        for name, place in list(colours.items())[:MOST_NAMED]
    ]
    more = len(colours) - len(named)
    return joined(
        (
            element("h2", "Timelines"),
            paragraphs(
                "Each bar is a claim by a consumer. Below it, how far the claim got: straight between its first and its last "
                "line in the ledger. Point at anything for its particulars."
            ),
            legend(named),
            paragraphs(f"and {counted(more, 'more consumer')}, in the same colours again") if more > 0 else None,
            legend(key_of_marks()),
            *(_partition(one, colours, rest, place < UNFOLDED) for place, one in enumerate(partitions)),
        )
    )


def _partition(one: PartitionProof, colours: Mapping[str, int], rest: str, unfolded: bool) -> Markup:
    found = ", ".join(f"{some} {kind}" for kind, some in amounts([one]).items())
    lag = "lag not known" if one.lag is None else f"lag {one.lag:,}"
    summary = element(
        "summary",
        element("h3", _name(one)),
        element("span", VERDICTS[one.verdict], class_=f"badge {_class(one.verdict)}"),
        element("span", f"{found or 'no findings'}; {lag}; {counted(len(one.claims), 'claim')}", class_="soft small"),
    )
    reasons = (
        element("ul", (element("li", reason) for reason in one.missing), class_="reasons") if one.missing else None
    )
    return element(
        "details", summary, timeline(one, colours), reasons, _findings(one, rest),
        class_="card", id=_anchor(one), open=unfolded,
    )  # fmt: skip


def _findings(one: PartitionProof, rest: str) -> Markup | None:
    if not one.findings:
        return None
    rank = {kind: place for place, kind in enumerate(KINDS)}
    worst = sorted(one.findings, key=lambda finding: (rank[finding.kind], finding.first))[:MOST_FINDINGS]
    rows: Iterable[list[Cell | str]] = (
        [
            Cell(finding.kind, class_="hit" if finding.kind in ANOMALIES else "noted"),
            Cell(str(finding.first), finding.first),
            Cell(str(finding.next - 1), finding.next - 1),
            number(finding.offsets),
            number(finding.times),
            finding.cause,
            Cell(moment(finding.wall), class_="time"),
        ]
        for finding in worst
    )
    headers = ("finding", "first", "last", "records", "times", "cause", "when")
    more = len(one.findings) - len(worst)
    caption = f"Findings in {_name(one)}" + (f"; {more:,} more are in {rest}" if more else "")
    return table(headers, rows, caption=caption, tall=True)


def _name(one: PartitionProof) -> str:
    return f"{one.key.topic}/{one.key.partition}"


def _anchor(one: PartitionProof) -> str:
    # Without a blank, and different for each partition: names may hold anything but a slash.
    return f"{one.key.group}/{one.key.topic}/{one.key.partition}".encode(errors="surrogatepass").hex()


def _class(verdict: Verdict) -> str:
    return VERDICTS[verdict].replace(" ", "-")
