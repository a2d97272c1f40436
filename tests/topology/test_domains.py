"""Do servers of several GPUs get an NVSwitch, and does nothing else change its number?"""

import pytest

from actors.fabric.model import HOST, NVLINK, Role, Topology, TopologyError
from emu.topology.fabrics import with_domains
from tests.topology.fabrics import zone

RATE_BPS, DELAY_PS = 3600 * 10**9, 250_000


def test_an_nvswitch_joins_the_gpus_of_a_server_and_nothing_else() -> None:
    fabric = with_domains(zone(racks=1, hosts_per_rack=2, gpus_per_host=3, spines=0), RATE_BPS, DELAY_PS)
    switches = [node for node in fabric.nodes if node.role is Role.NVSWITCH]
    assert [node.name for node in switches] == ["nvswitch-0", "nvswitch-1"]
    for host, switch in enumerate(switches):
        gpus = [node for node in fabric.server(host) if fabric.nodes[node].role is Role.GPU]
        assert [end.peer for end in fabric.ports(switch.number)] == gpus
        assert fabric.server(host)[-1] == switch.number
        for place, gpu in enumerate(gpus):
            end = fabric.nvlink_end(gpu)
            assert end is not None
            assert (end.peer, end.peer_port) == (switch.number, place)
            assert (end.kind, end.rate_bps, end.delay_ps) == (NVLINK, RATE_BPS, DELAY_PS)
            assert fabric.ports(gpu)[0] == fabric.host_end(gpu)
            assert fabric.host_end(gpu).kind == HOST
    assert fabric.links_named("gpu-1-2:nvswitch-1")


def test_no_node_link_or_port_but_the_controllers_is_numbered_anew() -> None:
    plain = zone(racks=2, hosts_per_rack=1, gpus_per_host=2, spines=2)
    fabric = with_domains(plain, RATE_BPS, DELAY_PS)
    assert fabric.nodes[: len(plain.nodes) - 1] == plain.nodes[:-1]
    assert fabric.links[: len(plain.links)] == plain.links
    assert fabric.controller == len(plain.nodes) - 1 + 2
    assert fabric.nodes[-1].role is Role.CONTROLLER
    for nic in plain.nics:
        assert fabric.ports(nic) == plain.ports(nic)
        assert fabric.address_of(nic) == plain.address_of(nic)


def test_servers_of_one_gpu_have_none() -> None:
    plain = zone(racks=2, hosts_per_rack=2, gpus_per_host=1, spines=2)
    assert with_domains(plain, RATE_BPS, DELAY_PS) is plain


def test_a_name_that_is_taken_is_refused() -> None:
    plain = zone(racks=1, hosts_per_rack=1, gpus_per_host=2, spines=0)
    nodes = list(plain.nodes)
    (leaf,) = plain.switches
    nodes[leaf] = nodes[leaf].__class__(leaf, "nvswitch-0", Role.SWITCH, "rtsw", 1, "backend", 0, -1, 0)
    with pytest.raises(TopologyError, match="nvswitch-0 is what the NVSwitch of host-0 is called"):
        with_domains(Topology(nodes, plain.links), RATE_BPS, DELAY_PS)
