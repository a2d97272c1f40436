"""Is an algorithm of MSCCL the graph that it says, and what cannot be said refused at its step?"""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from emu import api
from emu.base.errors import FormatError, ScenarioError
from emu.cli.main import main
from emu.results.summary import Collective
from emu.scenario.load import load_text
from emu.scenario.readers.msccl import read_msccl

RANKS = 4
Row = tuple[str, str, int, str, int]
"""Type of a step, source and its first chunk, destination and its first chunk."""


def written(
    coll: str, ranks: list[list[tuple[int, int, int, list[Row]]]], chunks: int, pieces: int = 1
) -> str:
    """As msccl-tools writes it: of each rank its thread blocks (send, recv, chan, rows)."""
    algo = ET.Element("algo", name="made", proto="LL", coll=coll, ngpus=str(len(ranks)))
    for rank, blocks in enumerate(ranks):
        counts = {"i_chunks": str(chunks), "o_chunks": str(chunks), "s_chunks": "0"}
        gpu = ET.SubElement(algo, "gpu", {"id": str(rank), **counts})
        for number, (send, recv, chan, rows) in enumerate(blocks):
            ends = {"send": str(send), "recv": str(recv), "chan": str(chan)}
            block = ET.SubElement(gpu, "tb", {"id": str(number), **ends})
            for at, (kind, source, first, target, into) in enumerate(rows):
                keys = {"srcbuf": source, "srcoff": str(first), "dstbuf": target, "dstoff": str(into)}
                waits = {"cnt": "1", "depid": "-1", "deps": "-1", "hasdep": "0"}
                ET.SubElement(block, "step", {"s": str(at), "type": kind, **keys, **waits})
    return ET.tostring(algo, encoding="unicode")


def ring(lanes: int = 1) -> str:
    """A ring's all_reduce: a block is sent, added to on its way round, and sent round once more."""

    def rows(rank: int, lane: int) -> list[Row]:
        at = [(rank - back) % RANKS * lanes + lane for back in range(RANKS)]
        kinds = ["s", *["rrcs"] * (RANKS - 1), *["rcs"] * (RANKS - 2), "r"]
        places = [at[0], *at[1:], *at[:-1]]
        return [(kind, "i", place, "i", place) for kind, place in zip(kinds, places, strict=True)]

    every = [
        [((rank + 1) % RANKS, (rank - 1) % RANKS, lane, rows(rank, lane)) for lane in range(lanes)]
        for rank in range(RANKS)
    ]
    return written("allreduce", every, RANKS * lanes)


def direct(coll: str) -> str:
    """Everybody sends to everybody, a thread block for each peer; own blocks are copied."""
    ranks = []
    for rank in range(RANKS):
        mine = 0 if coll == "allgather" else rank
        blocks: list[tuple[int, int, int, list[Row]]] = [(-1, -1, 0, [("cpy", "i", mine, "o", rank)])]
        for peer in range(RANKS):
            if peer != rank:
                out = 0 if coll == "allgather" else peer
                rows = [("s", "i", out, "o", rank), ("r", "i", out, "o", peer)]
                blocks.append((peer, peer, 0, rows))
        ranks.append(blocks)
    return written(coll, ranks, RANKS)


def measured(path: Path, algorithm: str) -> Collective:
    work = f"{{kind: collective, op: all_reduce, algorithm: {algorithm}, sizes: [64KiB]}}"
    path.write_text(
        f"name: a\ntopology: {{kind: star, hosts: {RANKS}}}\nncclx: {{channels: 1, protocol: simple}}\n"
        f"jobs: [{{name: mine, workload: {work}}}]\n",
        "utf-8",
    )
    (row,) = api.run(path, local=True).summary.jobs["mine"].collectives
    return row


def test_a_ring_takes_the_time_of_the_library_s_ring(tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(ring(), "utf-8")
    own, known = (measured(tmp_path / "a.yaml", name) for name in ("ring.xml", "ring"))
    assert (own.status, own.algorithm) == ("success", "graph")
    assert own.end_ps is not None
    assert (own.start_ps, own.end_ps) == (known.start_ps, known.end_ps)


@pytest.mark.parametrize("coll", ["allreduce", "allgather", "alltoall"])
def test_what_is_imported_is_proved_and_run(tmp_path: Path, coll: str) -> None:
    """Of a ring of 12 lanes each chunk has a connection of its own, however small the buffer."""
    (tmp_path / "made.xml").write_text(ring(12) if coll == "allreduce" else direct(coll), "utf-8")
    out = tmp_path / "out.yaml"
    assert main(["import", str(tmp_path / "made.xml"), "-o", str(out)]) == 0
    text = out.read_text("utf-8").replace("[1MiB, 16MiB]", "[16KiB]")
    assert "algorithm: made.xml" in text
    assert "proto LL of <algo>" in text
    out.write_text(text, "utf-8")
    (row,) = api.run(out, local=True).summary.jobs["algorithm"].collectives
    assert row.status == "success"


def test_steps_come_in_an_order_that_dependences_allow() -> None:
    text = ring(2)
    assert [step["chunks"] for step in read_msccl(text).steps[0]][:2] == [[0], [6]]
    waiting = text.replace('depid="-1" deps="-1"', 'depid="1" deps="6"', 1)
    assert read_msccl(waiting).steps[0][0]["lane"] == 1
    stuck = waiting.replace(
        'depid="-1" deps="-1" hasdep="0" /></tb></gpu>', 'depid="0" deps="0" /></tb></gpu>', 1
    )
    with pytest.raises(FormatError, match="wait for one another") as caught:
        read_msccl(stuck)
    assert caught.value.line == 1


def test_a_ring_that_does_not_add_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "ring.xml").write_text(ring().replace("rrcs", "rcs"), "utf-8")
    with pytest.raises(ScenarioError, match="is no all_reduce of 65536 B: rank 0: byte 0 lacks rank"):
        measured(tmp_path / "a.yaml", "ring.xml")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('coll="allreduce"', 'coll="custom"', "coll='custom' is not modelled"),
        ('type="r"', 'type="re"', "gpu 0, tb 0, step 6: .* adds up two places of one rank"),
        ('type="r"', 'type="x"', "<step type='x'>"),
        ('dstoff="3"', 'dstoff="2"', "gpu 0, tb 0, step 1: the sum is written elsewhere"),
        ('chan="0"', 'chan="32"', "channel 32"),
        ('srcoff="3"', 'srcoff="4"', "gpu 0, tb 0, step 1: chunk 4 of data"),
        ('srcbuf="i"', 'srcbuf="q"', "srcbuf='q'"),
        ('cnt="1"', 'cnt="0"', "cnt=0"),
        ('srcoff="3"', 'srcoff="three"', "srcoff='three'"),
        ("<algo", "<!DOCTYPE a><algo", "a document type"),
        ("</algo>", "", "no XML"),
    ],
)
def test_what_a_graph_cannot_say_is_one_line(tmp_path: Path, old: str, new: str, reason: str) -> None:
    (tmp_path / "ring.xml").write_text(ring().replace(old, new, 1), "utf-8")
    work = "{kind: collective, op: all_reduce, algorithm: ring.xml, sizes: [1KiB]}"
    text = f"name: a\ntopology: {{kind: star, hosts: 4}}\njobs: [{{name: a, workload: {work}}}]\n"
    with pytest.raises(ScenarioError, match=reason) as caught:
        load_text(text, "a.yaml", tmp_path)
    assert [problem.key for problem in caught.value.problems] == ["jobs[0].workload.algorithm"]
