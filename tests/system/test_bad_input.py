"""Does everything that a user can get wrong end `emu run` with one clear line and the right status?

One line on standard error with file, line and key; nothing on standard output; and nothing of a run left
behind.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emu.cli.main import main

SMALL = """\
name: small
topology: {kind: ai_zone, racks: 2, hosts_per_rack: 1, gpus_per_host: 1, spines: 2, link: 400G}
jobs:
  - {name: ring, workload: {kind: collective, op: all_reduce, sizes: [64KiB]}}
"""
GRAPH = """\
name: drawn
topology:
  kind: graph
  nodes:
    - {name: host-a, role: host}
    - {name: gpu-a, role: gpu, host: host-a}
    - {name: nic-a, role: nic, host: host-a}
    - {name: host-b, role: host}
    - {name: gpu-b, role: gpu, host: host-b}
    - {name: nic-b, role: nic, host: host-b}
    - {name: left, role: switch}
    - {name: right, role: switch}
  links:
    - {a: nic-a, b: left, rate: 400G, delay: 500ns}
    - {a: nic-b, b: right, rate: 400G, delay: 500ns}
    - {a: left, b: right, rate: 400G, delay: 500ns}
jobs:
  - {name: ring, workload: {kind: collective, op: all_reduce, sizes: [64KiB]}}
"""
MISTAKES = {
    "an empty file": ("", "FILE: the file is empty; accepted: "),
    "a file of blanks": ("\n  \n# nothing\n", "FILE: the file is empty; accepted: "),
    "no mapping": ("- 1\n- 2\n", "FILE:1: "),
    "no YAML": ("name: [1, 2\n", "FILE:"),
    "a wrong type": (SMALL.replace("racks: 2", "racks: many"), "FILE:2: topology.racks: "),
    "a list for a section": (
        SMALL.replace("jobs:", "routing: [1]\njobs:"),
        "FILE:3: routing: [1] is not a mapping",
    ),
    "a negative rate": (SMALL.replace("400G", "-400G"), "FILE:2: topology.link: "),
    "a rate without a unit": (SMALL.replace("400G", "400"), "FILE:2: topology.link: 400 is a bare number"),
    "a rate in bytes": (SMALL.replace("400G", "400GB"), "FILE:2: topology.link: "),
    "a negative size": (SMALL.replace("64KiB", "-64KiB"), "FILE:4: jobs[0].workload.sizes[0]: "),
    "an unknown key": (SMALL + "sede: 3\n", "FILE:5: sede: unknown key; did you mean 'seed'?"),
    "a key given twice": (SMALL + "name: again\n", "FILE:5: name: "),
    "no name": (SMALL.replace("name: small\n", ""), "FILE:1: name: is required"),
    "more ranks than GPUs": (
        SMALL.replace("name: ring,", "name: ring, ranks: 3,"),
        "FILE:4: jobs[0].ranks: 3 ranks on a fabric of 2 GPUs; accepted: at most 2",
    ),
    "a flow to no rank": (
        SMALL.replace(
            "kind: collective, op: all_reduce, sizes: [64KiB]",
            "kind: flows, flows: [{src: 0, dst: 2, size: 1KiB}]",
        ),
        "FILE:4: jobs[0].workload.flows[0].dst: ",
    ),
    "a table of flows that is not there": (
        SMALL.replace("kind: collective, op: all_reduce, sizes: [64KiB]", "kind: flow_table, file: none.csv"),
        "FILE:4: jobs[0].workload.file: ",
    ),
    "a fault of no link": (
        SMALL + 'faults:\n  - {at: 1us, kind: link_down, target: "rtsw-0:ctsw-9"}\n',
        "FILE:6: faults[0].target: ",
    ),
    "an MTU that is none": (SMALL + "transport: {mtu: 9000}\n", "FILE:5: transport.mtu: 9000 is not an MTU"),
    "a buffer without room": (SMALL + "switch: {buffer: {pool: 10KB}}\n", "FILE:5: switch.buffer.pool: "),
    "an expectation of nothing": (SMALL + "expect:\n  - {value: drops}\n", "FILE:6: expect[0]: "),
    "a link to a node that does not exist": (
        GRAPH.replace("a: nic-b, b: right", "a: nic-b, b: rigth"),
        "FILE:15: topology.links[1].b: no device is named 'rigth'; did you mean 'right'?",
    ),
    "a graph that is not connected": (
        GRAPH.replace("    - {a: left, b: right, rate: 400G, delay: 500ns}\n", ""),
        "FILE:13: topology.links: ",
    ),
    "a link without a delay": (
        GRAPH.replace("a: left, b: right, rate: 400G, delay: 500ns", "a: left, b: right, rate: 400G"),
        "FILE:16: topology.links[2].delay: is required",
    ),
    "a link that takes no time": (
        GRAPH.replace(
            "a: left, b: right, rate: 400G, delay: 500ns", "a: left, b: right, rate: 400G, delay: 0"
        ),
        "FILE:16: topology.links[2].delay: 0 is too small; accepted: at least 1ns",
    ),
}


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, list[str]]:
    status = main(arguments)
    out, err = capsys.readouterr()
    return status, out, err.splitlines()


@pytest.mark.parametrize(("text", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_in_a_scenario_is_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(text, encoding="utf-8")
    status, out, err = reported(capsys, "run", str(file), "--local", "--out", str(tmp_path / "out"))
    assert (status, out) == (2, "")
    assert len(err) == 1, err
    assert err[0].startswith("emu: " + said.replace("FILE", str(file)))
    assert len(err[0]) < 300
    assert not (tmp_path / "out").exists()


def test_files_that_are_none_are_one_line_and_status_2(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    for name in ("none.yaml", "binary.yaml", "."):
        status, out, err = reported(capsys, "run", str(tmp_path / name), "--local")
        assert (status, out, len(err)) == (2, "", 1)
        assert err[0].startswith(f"emu: {tmp_path / name}:")


def test_packets_longer_than_the_mtu_and_broken_frames_are_the_wire_codecs_to_refuse() -> None:
    """What a peer sends, a user cannot get wrong: see `tests/wire` and, for the secret, `tests/engine`."""
    root = Path(__file__).parents[1]
    refusals = {
        "wire/test_batch.py": '"payload beyond the MTU"',
        "wire/test_codec.py": "def test_what_is_no_frame_is_refused",
        "engine/test_exchange.py": "def test_length_out_of_bounds_is_refused_before_the_body_is_read",
        "engine/test_peers.py": "def test_peer_with_another_secret_is_refused_on_both_sides",
    }
    assert [file for file, said in refusals.items() if said not in (root / file).read_text("utf-8")] == []


@contextmanager
def listening(answer: bytes) -> Iterator[int]:
    """The port of something that answers every connection so, and closes it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.mark.parametrize("how", ["--local", "--workers=2"])
def test_a_port_in_use_is_one_line_and_status_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, how: str
) -> None:
    with listening(b"") as port:
        options = ("--quiet", f"--discovery-port={port}", "--out", str(tmp_path / "out"))
        status, out, err = reported(capsys, "run", "tiny_flap", how, *options)
    said = f"emu: port {port} of 127.0.0.1 cannot be had for the discovery page: Address already in use"
    assert (status, out, err) == (4, "", [said])


def test_a_ray_cluster_that_is_not_there_is_one_line_and_status_4(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with socket.socket() as taken:  # and not listened on
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        for address, reason in ((f"127.0.0.1:{port}", "Connection refused"), ("nowhere.invalid:1", "")):
            status, out, err = reported(
                capsys, "run", "tiny_flap", "--quiet", "--address", address, "--out", str(tmp_path / "out")
            )
            assert (status, out, len(err)) == (4, "", 1)
            assert err[0].startswith(f"emu: no Ray cluster at {address}: {reason}")


def test_something_else_than_ray_at_an_address_is_reported_at_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with listening(b"HTTP/1.1 400 Bad Request\r\n\r\n") as port:
        address = f"127.0.0.1:{port}"
        status, out, err = reported(
            capsys, "run", "tiny_flap", "--quiet", "--address", address, "--out", str(tmp_path / "out")
        )
    said = f"emu: no Ray cluster at {address}: something else listens there"
    assert (status, out, err) == (4, "", [said])


@pytest.mark.parametrize("address", ["somewhere", "127.0.0.1:", "127.0.0.1:99999", ":6379"])
def test_what_is_no_address_is_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, address: str
) -> None:
    status, _, err = reported(
        capsys, "run", "tiny_flap", "--quiet", "--address", address, "--out", str(tmp_path / "out")
    )
    assert (status, err) == (
        2,
        [f"emu: {address!r} is no address of a Ray cluster; accepted: auto, HOST:PORT, ray://HOST:PORT"],
    )
