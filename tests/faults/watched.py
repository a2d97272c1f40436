"""A run with faults that is stepped from look to look: two leaves, two spines, flows between the leaves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from actors.control.controller import Controller
from actors.kernel.event import ARRIVAL, key_device, key_kind
from actors.switch.switch import Switch
from actors.wire.frame import Frame
from emu import api
from emu.devices.drawing import blueprint_of
from emu.engine.blueprint import spread
from emu.engine.live.stepping import Stepped
from tests.fabric.invariants import broken
from tests.faults.scripts import devices_of, pending_of
from tests.scenario.plain import plain

US = 10**6
FLOWS: dict[str, Any] = {
    "kind": "flows",
    "qps": 8,
    "flows": [{"src": at, "dst": at + 4, "size": "2MiB"} for at in range(4)],
}
RING: dict[str, Any] = {"kind": "collective", "op": "all_reduce", "sizes": ["1MiB"], "iterations": 20}


def mapping_of(faults: Iterable[dict[str, Any]], workload: dict[str, Any] = FLOWS) -> dict[str, Any]:
    """The scenario; faults last from 20 us to 60 us unless they say otherwise."""
    return plain(
        {
            "name": "kinds",
            "seed": 4,
            "topology": {
                "kind": "ai_zone",
                "racks": 2,
                "hosts_per_rack": 2,
                "gpus_per_host": 2,
                "spines": 2,
                "link": "100G",
            },
            "routing": {"kind": "e_ecmp", "convergence": "5us"},
            "transport": {"timeout": 3},
            "jobs": [{"name": "job", "workload": workload}],
            "faults": [
                {
                    key: value
                    for key, value in ({"at": "20us", "for": "40us"} | fault).items()
                    if value is not None
                }
                for fault in faults
            ],
        }
    )


class Broken:
    """A run with faults, stepped from look to look."""

    def __init__(self, *faults: dict[str, Any], workload: dict[str, Any] = FLOWS, **more: Any) -> None:
        prepared = api.prepare(plain(mapping_of(faults, workload) | more))
        self.topology = prepared.topology
        self.run = Stepped(spread(blueprint_of(prepared.scenario, prepared.topology), 1))

    def to(self, us: int) -> None:
        self.run.advance(us * US)
        assert broken(self.topology, devices_of(self.run), pending_of(self.run)) == []

    def device(self, name: str) -> Any:
        number = self.topology.node_named(name).number
        return next(one for one in devices_of(self.run) if one.number == number)

    def port(self, name: str, peer: str) -> Any:
        device = self.device(name)
        ports = list(device.ports) if isinstance(device, Switch) else device.ports()
        ends = self.topology.ports(device.number)
        other = self.topology.node_named(peer).number
        return next(port for port, end in zip(ports, ends, strict=False) if end.peer == other)

    def counted(self, metric: str, name: str, peer: str = "", priority: int = -1, reason: str = "") -> int:
        """What a device has counted, over the ports, priorities and reasons that fit."""
        device = self.device(name)
        ends = self.topology.ports(device.number)
        nodes = self.topology.nodes
        return sum(
            value
            for one, value in zip(device.series(), device.counters(), strict=True)
            if one.metric == metric
            and (not peer or nodes[ends[one.port].peer].name == peer)
            and priority in (-1, one.priority)
            and reason in ("", one.reason)
        )

    def flights_ps(self, name: str) -> list[int]:
        """From the first bit to the arrival, of what flies towards a device."""
        number = self.topology.node_named(name).number
        return [
            one.time_ps - one.sent_ps
            for one in pending_of(self.run)
            if isinstance(one, Frame) and key_kind(one.key) == ARRIVAL and key_device(one.key) == number
        ]

    def status(self) -> int:
        controller = next(one for one in devices_of(self.run) if isinstance(one, Controller))
        return int(controller.jobs[0].status)
