"""Is the topology of a server that NCCL dumps read as it is meant?"""

import re

import pytest

from emu.scenario.readers.nccl_topology import NcclTopologyError, read_machine

GBPS = 10**9


def pci(address: str, inside: str = "", speed: str = "32.0 GT/s PCIe", kind: str = "0x060400") -> str:
    about = f'class="{kind}" vendor="0x1000" link_speed="{speed}" link_width="16"'
    return f'<pci busid="0000:{address}:00.0" {about}>{inside}</pci>'


def gpu(dev: int, address: str, links: str = '<nvlink target="fffffff:ff:ff.0" count="18"/>') -> str:
    return pci(address, f'<gpu dev="{dev}" sm="90" rank="{dev}" gdr="1">{links}</gpu>', kind="0x030200")


def net(dev: int, address: str, mbps: int = 400_000, speed: str = "32.0 GT/s PCIe") -> str:
    inside = f'<nic><net name="mlx5_{dev}" dev="{dev}" speed="{mbps}" port="1" maxconn="131072"/></nic>'
    return pci(address, inside, speed, "0x020000")


def system(*sockets: str) -> str:
    cpus = "".join(f'<cpu numaid="{at}" arch="x86_64">{one}</cpu>' for at, one in enumerate(sockets))
    return f'<system version="1">{cpus}</system>'


DUMP = system(
    pci("10", gpu(1, "1a") + net(0, "1b")) + net(2, "1d", 25_000),
    pci("20", gpu(0, "2a") + net(1, "2b")),
)
"""Two sockets with a bridge each, under it a GPU and a NIC; a slow NIC beside."""


def test_each_gpu_has_the_nic_under_its_own_bridge_and_the_slow_nic_is_left_out() -> None:
    machine = read_machine(DUMP)
    assert machine.gpus == ("gpu 0", "gpu 1")
    assert [(one.name, one.gpu) for one in machine.nics] == [("mlx5_1", 0), ("mlx5_0", 1)]
    assert {one.rate_bps for one in machine.nics} == {400 * GBPS}
    assert machine.left_out[0] == "mlx5_2 (25G)"


def test_eighteen_links_of_an_h100_carry_nccl_s_370_8_gbytes_and_gen5_is_504_gbits() -> None:
    machine = read_machine(DUMP)
    assert machine.nvlink_bps == 3_708 * 8 * GBPS // 10
    assert {one.pcie_bps for one in machine.nics} == {504 * GBPS}


def test_the_slowest_link_between_a_nic_and_its_gpu_counts_and_one_without_a_speed_does_not() -> None:
    """NCCL writes of each bridge its link to the one above (src/graph/topo.cc, ncclTopoAddPci): that of the
    bridge which both are under leads away from them, as on the H100 servers in Oracle's repository.
    """

    def gbps(inside: str, above: str = "32.0 GT/s PCIe") -> list[int]:
        return [one.pcie_bps // GBPS for one in read_machine(system(pci("10", inside, above))).nics]

    slow = "8.0 GT/s PCIe"
    assert gbps(gpu(0, "1a") + pci("11", net(0, "1b"), slow)) == [126]
    assert gbps(pci("11", gpu(0, "1a"), slow) + net(0, "1b")) == [126]
    assert gbps(gpu(0, "1a") + net(0, "1b"), slow) == [504]
    assert gbps(gpu(0, "1a") + pci("11", net(0, "1b"), "")) == [504]


def test_links_to_several_nvswitches_add_up_and_no_link_is_no_nvlink() -> None:
    links = "".join(f'<nvlink target="0000:0{at}:00.0" count="{n}"/>' for at, n in enumerate((5, 5, 4, 4)))
    assert read_machine(system(gpu(0, "1a", links) + net(0, "1b"))).nvlink_bps == 29_664 * GBPS // 10
    assert read_machine(system(gpu(0, "1a", "") + net(0, "1b"))).nvlink_bps == 0


def test_a_file_of_a_cloud_has_classes_alone() -> None:
    text = system(pci("10", pci("1a", kind="0x030200") + pci("1b", kind="0x020700")))
    machine = read_machine(text)
    assert (machine.gpus, machine.nvlink_bps) == (("0000:1a:00.0",), None)
    assert [(one.name, one.rate_bps) for one in machine.nics] == [("0000:1b:00.0", 0)]


def test_of_several_servers_the_first_is_read() -> None:
    text = "".join(
        f'<cpu host_hash="0x{host}" numaid="0">{gpu(0, "1a") + net(0, "1b")}</cpu>' for host in (1, 2, 3)
    )
    machine = read_machine(f'<system version="1">{text}</system>')
    assert (len(machine.gpus), machine.left_out[0]) == (1, "2 more servers (host_hash)")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('<graphs version="1"/>', "line 1: a <graphs>"),
        ("<system>\n<cpu></system>", "line 2: no XML"),
        ('<!DOCTYPE x [<!ENTITY a "b">]>\n<system/>', "line 1: a document type"),
        (system(net(0, "1b")), "line 1: no GPU in it"),
        (system(gpu(0, "1b")), "line 1: no NIC in it"),
        (system("<pci>" * 70 + "</pci>" * 70), "line 1: elements within one another"),
    ],
)
def test_what_is_no_topology_says_why(text: str, reason: str) -> None:
    with pytest.raises(NcclTopologyError, match=re.escape(reason)):
        read_machine(text)
