"""The captures of a scenario at the ports of devices that live here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from actors.fabric.model import Topology
from actors.kernel.device import Device
from actors.nic.nic import Nic
from actors.port.tap import KINDS, Capture
from actors.switch.switch import Switch
from emu.counts.collected import CapturedRows
from emu.devices.buffer_sizes import pause_response_ps
from emu.devices.switches import fabric_ports
from emu.scenario.schema import Scenario
from emu.scenario.sections.capture import CaptureSection, nics_named, ports_named


def give_captures(
    scenario: Scenario, topology: Topology, devices: Iterable[Device], first: int = 0
) -> list[tuple[int, int, Capture]]:
    """Put the captures from `first` on at the ports of these devices; device, port and capture of each."""
    captures = scenario.run.capture
    if first >= len(captures):
        return []
    made = []
    here = {int(device.number): device for device in devices if isinstance(device, Switch | Nic)}
    for number in range(first, len(captures)):
        section = captures[number]
        for spot in ports_named(topology, section.ports):
            device = here.get(spot.node)
            if device is not None:
                capture = _capture(scenario, topology, device, spot.port, number, section)
                made.append((spot.node, spot.port, capture))
    return made


def _capture(
    scenario: Scenario,
    topology: Topology,
    device: Switch | Nic,
    number: int,
    capture: int,
    section: CaptureSection,
) -> Capture:
    port = fabric_ports(device)[number]
    made = Capture(
        capture,
        port,
        port.cuts,
        pause_response_ps(
            scenario, topology, int(device.number), topology.ports(int(device.number))[number].rate_bps
        ),
        section.at_ps,
        section.until_ps,
        section.snap_length_bytes,
        section.most_packets,
    )
    wanted = section.filter  # an empty list takes all; the packet path asks masks without a case for that
    addresses = [topology.address_of(nic) for nic in nics_named(topology, wanted.nics or ())]
    made.set_filter(
        _mask([KINDS.index(kind) for kind in wanted.kinds]) or (1 << len(KINDS)) - 1,
        _mask(wanted.priorities) or 0xFF,
        addresses,
        list(wanted.queue_pairs),
    )
    port.set_tap(made)
    return made


def captures_of(devices: Iterable[Device]) -> list[tuple[int, int, Capture]]:
    """Every capture at a port of these devices, with device and port."""
    return [
        (int(device.number), at, tap)
        for device in devices
        if isinstance(device, Switch | Nic)
        for at, port in enumerate(fabric_ports(device))
        for tap in port.taps
        if isinstance(tap, Capture)
    ]


def captured_by(device: Device) -> tuple[CapturedRows, ...]:
    """What captures have of a device."""
    return tuple(rows_of(port, capture) for _, port, capture in captures_of((device,)))


def rows_of(port: int, capture: Capture) -> CapturedRows:
    """What a capture has of its port."""
    return CapturedRows(int(capture.number), port, int(capture.missed), tuple(capture.rows))


def _mask(bits: Sequence[int]) -> int:
    return sum(1 << bit for bit in set(bits))
