"""Do captures show the frames of a run as the wire had them, to the bit and to the picosecond?

The files are read here by a reader of pcapng that knows nothing of the writer, scapy recomputes what is
computed, and tshark, where there is one, dissects them.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from emu import api
from emu.base.errors import ScenarioError
from emu.cli.main import main
from tests.summary.known import known
from tests.tidy.tracked import ROOT

TSHARK = shutil.which("tshark")
NEEDS_TSHARK = pytest.mark.skipif(TSHARK is None, reason="tshark is not installed (apt install tshark)")
RECEIVED, SENT = 1, 2
CRC_ERROR = 1 << 24
ACKNOWLEDGE, CNP = 0x11, 0x81
NAK_SEQUENCE, RNR = 0x60, 0x20


class Packet(NamedTuple):
    """A packet block of a file."""

    interface: str
    time_ps: int
    data: bytes
    length: int
    direction: int
    crc_error: bool
    comment: str

    @property
    def roce(self) -> bool:
        """Whether it is RoCEv2: UDP to port 4791."""
        return self.data[12:14] == b"\x08\x00" and self.data[36:38] == struct.pack(">H", 4791)

    @property
    def opcode(self) -> int:
        """The opcode of its BTH."""
        return self.data[42]

    @property
    def psn(self) -> int:
        """The PSN of its BTH."""
        return int.from_bytes(self.data[51:54], "big")

    @property
    def syndrome(self) -> int:
        """The syndrome of its AETH."""
        return self.data[54]


class File(NamedTuple):
    """A file, read."""

    packets: list[Packet]
    interfaces: dict[str, dict[int, bytes]]
    """Options by name."""
    counts: dict[str, tuple[int, int]]
    """Packets that passed, and those that were not kept, by interface."""


def options_of(body: bytes) -> dict[int, bytes]:
    found = {}
    while len(body) >= 4:
        code, length = struct.unpack_from("<HH", body)
        found[code] = body[4 : 4 + length]
        body = body[4 + -(-length // 4) * 4 :]
    return found


def read(path: Path) -> File:
    """A pcapng file with little-endian blocks."""
    whole, at_byte = path.read_bytes(), 0
    packets: list[Packet] = []
    names: list[str] = []
    found = File(packets, {}, {})
    while at_byte < len(whole):
        kind, length = struct.unpack_from("<II", whole, at_byte)
        body = whole[at_byte + 8 : at_byte + length - 4]
        at_byte += length
        assert struct.unpack_from("<I", whole, at_byte - 4) == (length,)
        if kind == 1:
            options = options_of(body[8:])
            assert struct.unpack_from("<H", body) == (1,)
            assert options[9] == bytes([12]), "picoseconds"
            names.append(options[2].decode())
            found.interfaces[names[-1]] = options
        elif kind == 6:
            at, high, low, kept, size = struct.unpack_from("<IIIII", body)
            options = options_of(body[20 + -(-kept // 4) * 4 :])
            (flags,) = struct.unpack("<I", options[2])
            packets.append(
                Packet(
                    names[at],
                    high << 32 | low,
                    body[20 : 20 + kept],
                    size,
                    flags & 3,
                    bool(flags & CRC_ERROR),
                    options.get(1, b"").decode(),
                )
            )
        elif kind == 5:
            (at,) = struct.unpack_from("<I", body)
            counts = options_of(body[12:])
            seen, missed = (struct.unpack("<Q", counts[code])[0] for code in (4, 5))
            found.counts[names[at]] = (seen, missed)
        else:
            assert kind == 0x0A0D0D0A
            assert body[:4] == struct.pack("<I", 0x1A2B3C4D)
    return found


def captured(
    tmp_path: Path, scenario: str | dict[str, Any], overrides: dict[str, Any] | None = None, parts: int = 1
) -> tuple[File, api.Result]:
    """The first capture of a run, and its result."""
    result = api.run(scenario, overrides=overrides, local=True, parts=parts, out=tmp_path / "run", force=True)
    return read(tmp_path / "run/captures/0.pcapng"), result


PAIR: dict[str, Any] = {
    "name": "pair",
    "topology": {"kind": "ai_zone", "racks": 1, "hosts_per_rack": 2, "gpus_per_host": 1, "spines": 1},
    "switch": {"latency": "300ns"},
    "nic": {"latency": "200ns"},
    "transport": {"mtu": 4096},
    "jobs": [{"name": "one", "workload": {"kind": "flows", "flows": [{"src": 0, "dst": 1, "size": "4KiB"}]}}],
    "run": {"capture": [{"ports": ["nic-*", "rtsw-0"]}]},
}


@pytest.mark.parametrize("forwarding", ["store_and_forward", "cut_through"])
def test_times_are_first_bit_out_and_last_bit_in(tmp_path: Path, forwarding: str) -> None:
    file, _ = captured(tmp_path, PAIR, {"switch.forwarding": forwarding})
    seen = [(one.interface, one.direction, one.time_ps) for one in file.packets if one.opcode == 0x0A]
    frame_ps, head_ps, delay_ps = 4194 * 20, 62 * 20, 500_000
    out_ps = seen[0][2]
    in_ps = out_ps + frame_ps + delay_ps
    on_ps = in_ps + 300_000 if forwarding == "store_and_forward" else out_ps + head_ps + delay_ps + 300_000
    assert seen == sorted(
        [
            ("nic-0-0:0", SENT, out_ps),
            ("rtsw-0:0", RECEIVED, in_ps),
            ("rtsw-0:1", SENT, on_ps),
            ("nic-1-0:0", RECEIVED, on_ps + frame_ps + delay_ps),
        ],
        key=lambda one: one[2],
    )


def test_an_interface_names_port_peer_and_rate(tmp_path: Path) -> None:
    file, _ = captured(tmp_path, PAIR)
    assert {"nic-0-0:0", "nic-1-0:0", "rtsw-0:0", "rtsw-0:1"} < set(file.interfaces)
    about = file.interfaces["rtsw-0:1"]
    assert (about[3], struct.unpack("<Q", about[8])) == (b"to nic-1-0:0", (400_000_000_000,))


LOSSY: dict[str, Any] = {
    "name": "lossy",
    "seed": 3,
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 3, "gpus_per_host": 1, "spines": 2},
    "switch": {"pfc": {"enabled": False}, "buffer": {"pool": "300KB", "headroom": "0B", "reserve": "0B"}},
    "transport": {"timeout": 2, "retry_count": 7},
    "link": {"bit_error_rate": "1/20000000"},
    "jobs": [{"name": "burst", "workload": {"kind": "incast", "size": "256KiB", "fan_in": 5}}],
    "faults": [{"at": "20us", "kind": "link_down", "target": "rtsw-0:ctsw-0", "for": "15us"}],
    "run": {"capture": [{"ports": "*"}]},
}


def test_every_frame_that_a_port_counts_is_captured_and_every_drop_has_its_reason(tmp_path: Path) -> None:
    file, result = captured(tmp_path, LOSSY)
    shown = Counter(one.comment.removeprefix("dropped: ") for one in file.packets if one.comment)
    dropped = {reason: count for reason, count in known(result.summary.drops).by_reason.items() if count}
    assert dict(shown) == dropped
    assert {"no_shared_room", "corrupt", "link_down"} <= set(dropped)
    assert all(one.crc_error == (one.comment == "dropped: corrupt") for one in file.packets)
    lost_on_arrival = ("dropped: corrupt", "dropped: link_down")
    counted: Counter[tuple[str, int]] = Counter()
    for one in file.packets:
        if one.direction == RECEIVED and one.comment not in lost_on_arrival:
            counted[one.interface, RECEIVED] += 1
        if one.direction == SENT and not one.comment:
            counted[one.interface, SENT] += 1
    names = {
        record.number: node.name
        for record, node in zip(result.outcome.devices, topology_of(LOSSY), strict=True)
    }
    expected: Counter[tuple[str, int]] = Counter()
    for record in result.outcome.devices:
        for series, value in zip(record.series, record.counters, strict=True):
            for metric, direction in (("port_receive_frames", RECEIVED), ("port_transmit_frames", SENT)):
                if series.metric == metric and value:
                    expected[f"{names[record.number]}:{series.port}", direction] += value
    assert counted == expected


def topology_of(scenario: dict[str, Any]) -> Any:
    """The nodes of its fabric."""
    return api.prepare(scenario).topology.nodes


CONGESTED: dict[str, Any] = {
    "name": "congested",
    "topology": {"kind": "ai_zone", "racks": 2, "hosts_per_rack": 3, "gpus_per_host": 1, "spines": 1},
    "switch": {
        "buffer": {"xoff": "40KB"},
        "ecn": {"enabled": True, "kmin": "5KB", "kmax": "20KB", "pmax": 1},
    },
    "transport": {"congestion_control": {"kind": "dcqcn"}},
    "jobs": [{"name": "burst", "workload": {"kind": "incast", "size": "256KiB", "fan_in": 5}}],
    "run": {"capture": [{"ports": "*"}]},
}


def test_pauses_and_cnps_are_captured_as_often_as_they_are_counted(tmp_path: Path) -> None:
    file, result = captured(tmp_path, CONGESTED)
    pauses = [one for one in file.packets if one.data[12:16] == bytes.fromhex("88080101")]
    assert all(one.data[:6] == bytes.fromhex("0180c2000001") and one.length == 60 for one in pauses)
    sent = [one for one in pauses if one.direction == SENT]
    xoff = sum(1 for one in sent if any(one.data[18:34]))
    assert xoff == known(result.summary.fabric.pfc_transmit_xoff_frames) > 0
    assert {one.data[17] for one in sent} == {1 << 3}
    marked = [
        one for one in file.packets if one.roce and one.opcode == CNP and one.interface.startswith("nic")
    ]
    assert (
        sum(one.direction == SENT for one in marked) == sum(one.direction == RECEIVED for one in marked) > 0
    )
    assert all(one.data[46] & 0x40 for one in marked), "BECN"
    congested = [one for one in file.packets if one.roce and one.data[15] & 3 == 3]
    assert {one.interface.partition("-")[0] for one in congested} >= {"rtsw", "nic"}


def test_updates_of_credits_are_captured_as_often_as_they_are_counted(tmp_path: Path) -> None:
    file, result = captured(
        tmp_path,
        CONGESTED | {"switch": {}, "link": {"flow_control": "credits"}, "transport": {"ack_priority": 6}},
    )
    updates = [one for one in file.packets if one.data[12:14] == b"\x88\xb5"]
    counted = sum(
        value
        for record in result.outcome.devices
        for series, value in zip(record.series, record.counters, strict=True)
        if series.metric == "credit_transmit_updates"
    )
    assert sum(one.direction == SENT for one in updates) == counted > 0
    assert {one.data[16] >> 4 for one in updates} == {3, 6}, "virtual lanes"


def test_a_retransmission_can_be_followed_by_its_psn(tmp_path: Path) -> None:
    file, _ = captured(tmp_path, str(ROOT / "scenarios/nic/capture.yaml"))
    lost = next(one for one in file.packets if one.comment == "dropped: icrc")
    data = [one for one in file.packets if one.opcode < ACKNOWLEDGE and one.psn == lost.psn]
    naks = [one for one in file.packets if one.opcode == ACKNOWLEDGE and one.syndrome == NAK_SEQUENCE]
    first = [one for one in naks if one.psn == lost.psn][:2]
    story = sorted([*data[:4], *first], key=lambda one: one.time_ps)
    assert [(one.interface, one.direction, one.comment) for one in story] == [
        ("nic-0-0:0", SENT, ""),
        ("nic-1-0:0", RECEIVED, "dropped: icrc"),
        ("nic-1-0:0", SENT, ""),
        ("nic-0-0:0", RECEIVED, ""),
        ("nic-0-0:0", SENT, ""),
        ("nic-1-0:0", RECEIVED, ""),
    ]


def recomputed(one: Packet) -> None:
    """Have scapy work out again what a packet carries: checksum and ICRC."""
    bth, ip = import_module("scapy.contrib.roce").BTH, import_module("scapy.layers.inet").IP
    end = 14 + int.from_bytes(one.data[16:18], "big")  # telemetry is behind the packet
    packet = import_module("scapy.layers.l2").Ether(one.data[:end])
    assert packet[ip].dport == 4791
    said = one.data[end - 4 : end]
    assert said == struct.pack(">I", packet[bth].icrc) == packet[bth].compute_icrc(b"")
    checksum, packet[ip].chksum = packet[ip].chksum, None
    assert ip(bytes(packet[ip])).chksum == checksum


@pytest.mark.parametrize(
    "name",
    [
        "nic/verb_read",
        "nic/rnr",
        "nic/verb_send",
        "nic/selective_repeat",
        "congestion/hpcc",
        "start/tiny_all_reduce",
    ],
)
def test_scapy_recomputes_every_icrc(tmp_path: Path, name: str) -> None:
    capture = {"ports": "nic-*", "for": "30us"}
    if name == "nic/verb_read":
        capture["snap_length"] = "131B"  # packets that are cut are whole to a reader, too
    overrides: dict[str, Any] = {"run.capture": [capture], "expect": []}
    if name == "congestion/hpcc":
        overrides |= {"run.max_time": "40us", "jobs[0].workload.size": "64KiB"}
    if name == "start/tiny_all_reduce":
        overrides["payload"] = "real"
    file, _ = captured(tmp_path, str(ROOT / f"scenarios/{name}.yaml"), overrides)
    assert file.packets
    for one in file.packets[:200]:
        recomputed(one)
    if name == "nic/rnr":
        assert any(one.opcode == ACKNOWLEDGE and one.syndrome & 0xE0 == RNR for one in file.packets)
    if name == "start/tiny_all_reduce":
        assert any(any(one.data[70:-4]) for one in file.packets if one.opcode < ACKNOWLEDGE), "real bytes"


def test_a_capture_changes_no_digest_and_is_the_same_for_any_number_of_parts(tmp_path: Path) -> None:
    digests, files = set(), set()
    for parts in (1, 3):
        _, result = captured(tmp_path, LOSSY, parts=parts)
        digests.add(result.outcome.digest)
        files.add((tmp_path / "run/captures/0.pcapng").read_bytes())
    digests.add(api.run(LOSSY, overrides={"run.capture": []}, local=True).outcome.digest)
    assert (len(digests), len(files)) == (1, 1)


def test_a_fork_captures_what_the_whole_run_would_have_captured_from_then_on(tmp_path: Path) -> None:
    scenario, entry = str(ROOT / "scenarios/start/tiny_flap.yaml"), "{ports: nic-*, at: 20us, for: 5us}"
    words = ["--local", "--quiet", "--out"]
    assert main(["run", scenario, "--snapshot-at", "20us", *words, str(tmp_path / "parent")]) == 0
    asked = ["--set", f"run.capture=[{entry}]"]
    assert (
        main(["fork", str(tmp_path / "parent"), "--at", "20us", *asked, *words, str(tmp_path / "fork")]) == 0
    )
    assert main(["run", scenario, *asked, *words, str(tmp_path / "whole")]) == 0
    files = [(tmp_path / name / "captures/0.pcapng").read_bytes() for name in ("fork", "whole")]
    assert read(tmp_path / "fork/captures/0.pcapng").packets
    assert files[0] == files[1]


def test_a_capture_that_sees_nothing_is_named_at_the_end(tmp_path: Path) -> None:
    _, result = captured(
        tmp_path, PAIR, {"run.capture": [{"ports": "nic-0-0", "filter": {"kinds": ["cnp"]}}]}
    )
    assert "run.capture[0]" in [one.feature for one in result.summary.never_fired]


def test_span_filter_snap_length_and_room_keep_what_they_say(tmp_path: Path) -> None:
    entry = {
        "ports": "nic-0-0",
        "at": "2us",
        "for": "3us",
        "filter": {"kinds": ["data"], "priorities": [3], "nics": "nic-1-0"},
        "snap_length": "64B",
        "most_packets": 10,
    }
    path = str(ROOT / "scenarios/nic/capture.yaml")
    whole, _ = captured(tmp_path, path)
    wanted = [
        one
        for one in whole.packets
        if one.interface == "nic-0-0:0" and 2_000_000 <= one.time_ps < 5_000_000 and one.direction == SENT
    ]
    file, _ = captured(tmp_path, path, {"run.capture": [entry]})
    assert [one.time_ps for one in file.packets] == [one.time_ps for one in wanted][:10]
    assert {len(one.data) for one in file.packets} == {64}
    assert [one.length for one in file.packets] == [one.length for one in wanted][:10]
    assert file.counts == {"nic-0-0:0": (len(wanted), len(wanted) - 10)}


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"ports": "rtsw-9"}, r"run.capture\[0\].ports: 'rtsw-9' is no fabric port"),
        (
            {"ports": "rtsw-0:nic-7-0"},
            r"run.capture\[0\].ports: 'rtsw-0:nic-7-0' is no fabric port; accepted: a swi",
        ),
        ({"ports": "host-0"}, r"run.capture\[0\].ports: 'host-0' is no fabric port"),
        ({"ports": "nic-*", "for": "0s"}, r"run.capture\[0\].for: '0s' is too small; accepted: at least 1ps"),
        ({"ports": "nic-*", "at": "61s"}, r"run.capture\[0\].at: the run ends at 60s"),
        ({"ports": "nic-*", "filter": {"kinds": ["syn"]}}, r"run.capture\[0\].filter.kinds\[0\]: .*'syn'"),
        (
            {"ports": "nic-*", "filter": {"nics": "nic-9-9"}},
            r"run.capture\[0\].filter.nics: no device is named",
        ),
        ({"ports": "nic-*", "filter": {"port": 4791}}, r"run.capture\[0\].filter.port: unknown key"),
        ({"ports": "nic-*", "snap_length": "20B"}, r"run.capture\[0\].snap_length: 20B is out of range"),
    ],
)
def test_what_cannot_be_captured_is_refused_in_one_line(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(ScenarioError, match=message) as refused:
        api.prepare(PAIR | {"run": {"capture": [entry]}})
    assert len(refused.value.problems) == 1


@NEEDS_TSHARK
@pytest.mark.parametrize("snap_length", ["64KiB", "128B", "90B"])
def test_tshark_dissects_every_packet_without_options(tmp_path: Path, snap_length: str) -> None:
    entry = CONGESTED["run"]["capture"][0] | {"snap_length": snap_length}
    file, _ = captured(tmp_path, CONGESTED, {"run.capture": [entry]})
    assert TSHARK is not None
    names = ("frame.protocols", "_ws.malformed", "infiniband.bth.psn", "frame.len", "_ws.col.Info")
    fields = [f"-e{name}" for name in names]
    words = [TSHARK, "-r", str(tmp_path / "run/captures/0.pcapng"), "-Tfields", *fields]
    reported = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split("\t") for line in reported]
    assert [row[1] for row in rows] == [""] * len(file.packets)
    kinds = Counter(row[0] for row in rows)
    roce = sum(one.roce for one in file.packets)
    assert sum(count for kind, count in kinds.items() if "infiniband" in kind) == roce
    assert sum(count for kind, count in kinds.items() if "macc" in kind) == len(file.packets) - roce
    assert [int(row[2]) for row in rows if row[2]] == [one.psn for one in file.packets if one.roce]
    assert [int(row[3]) for row in rows] == [one.length for one in file.packets]
    assert [row[4] for row in rows if "Malformed" in row[4] or "limited" in row[4]] == []
    if snap_length != "64KiB":
        assert any(len(one.data) < one.length for one in file.packets)
