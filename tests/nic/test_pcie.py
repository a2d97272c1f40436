"""Is a NIC as fast as the PCIe behind it, in both directions, for all its ports together?

100G takes 327,680 ps for a payload of 4,096 B. On a link of 400G the first packet of a WRITE of several has
4,194 B and the others 4,178, 20 ps each. 16 packets are 64 KiB. Links are 500 ns long.
"""

import pytest

from actors.nic.memory_path import Fetch
from tests.fabric.rig import Fabric
from tests.fabric.sections import scenario, star

PAYLOAD_PS = 327_680
FIRST_PS, NEXT_PS = 4_194 * 20, 4_178 * 20
PACKETS = 16


def ran(nics: list[str], rate: str = "100G") -> Fabric:
    """NIC 0 writes 64 KiB to NIC 1."""
    limited = [{"devices": nics, "host": {"pcie": {"enabled": True}}}] if nics else []
    pcie = {"rate": rate, "enabled": not nics}
    fabric = Fabric(scenario(star(2), host={"pcie": pcie}, overrides=limited), [(0, 1)])
    fabric.post(0, 0, PACKETS * 4096)
    fabric.run()
    return fabric


def delivered_ps(fabric: Fabric) -> int:
    (delivery,) = fabric.deliveries(0)
    return delivery.time_ps


def test_a_sender_sends_as_fast_as_it_reads() -> None:
    fabric = ran(["nic-0"])
    # The last packet leaves when 15 payloads have been read.
    last_ps = (PACKETS - 1) * PAYLOAD_PS
    assert delivered_ps(fabric) == last_ps + 2 * (NEXT_PS + 500_000)
    waits = [PAYLOAD_PS - FIRST_PS, *[PAYLOAD_PS - NEXT_PS] * (PACKETS - 1)]
    assert fabric.total("nic_pcie_wait_ps") == sum(waits)


def test_a_receiver_takes_as_fast_as_it_writes() -> None:
    first_ps = 2 * (FIRST_PS + 500_000)
    assert delivered_ps(ran(["nic-1"])) == first_ps + PACKETS * PAYLOAD_PS


def test_with_both_ends_slow_the_receiver_is_never_idle() -> None:
    assert delivered_ps(ran([])) == delivered_ps(ran(["nic-1"]))


def test_a_sender_whose_pcie_is_as_fast_as_its_link_never_waits() -> None:
    fabric = ran(["nic-0"], "400G")
    assert (
        delivered_ps(fabric) == delivered_ps(ran(["nic-1"], "1000T")) - 33
    )  # 4,096 B at 1 Pbit/s, rounded up
    assert fabric.total("nic_pcie_wait_ps") == 0


def test_two_ports_of_a_nic_share_its_pcie() -> None:
    fetch = Fetch(100 * 10**9)
    assert [fetch.take(4096, 0, NEXT_PS) for _ in range(2)] == [PAYLOAD_PS, 2 * PAYLOAD_PS]
    assert fetch.take(4096, 10 * PAYLOAD_PS, 0) == 11 * PAYLOAD_PS
    assert fetch.wait_ps == 2 * (PAYLOAD_PS - NEXT_PS) + PAYLOAD_PS + 11 * PAYLOAD_PS


@pytest.mark.parametrize("events", [1, 7, 20])
def test_a_saved_nic_knows_when_its_pcie_is_free(events: int) -> None:
    host = {"pcie": {"enabled": True, "rate": "100G"}}
    given = scenario(star(2), host=host)
    whole, begun, resumed = (Fabric(given, [(0, 1)]) for _ in range(3))
    for fabric in (whole, begun):
        fabric.post(0, 0, PACKETS * 4096)
    whole.run()
    begun.run_events(events)
    resumed.load(begun.save())
    resumed.run()
    assert resumed.digest() == whole.digest()
