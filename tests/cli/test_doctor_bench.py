"""The prices of `emu doctor --bench` are divided by what really happens in its runs."""

import pytest

from emu.api import prepare, run
from emu.cli.doctor_bench import FLOW_BYTES, MTU_BYTES, PAIRS, scenario_of


@pytest.mark.parametrize(("name", "times"), [("quiet", 0), ("crossing", 2)])
def test_every_data_packet_and_every_ack_crosses_between_the_racks_once_or_never(
    name: str, times: int
) -> None:
    topology = prepare(scenario_of(name)).topology
    result = run(scenario_of(name), local=True)
    up = 0
    for record in result.outcome.devices:
        if topology.nodes[record.number].tier == 1:
            ends = topology.ports(record.number)
            for series, value in zip(record.series, record.counters, strict=True):
                if series.metric == "port_transmit_frames":
                    up += value * (topology.nodes[ends[series.port].peer].tier == 2)
    assert up == times * len(PAIRS[name]) * FLOW_BYTES[name] // MTU_BYTES
