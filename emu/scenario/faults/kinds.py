"""Section `faults`: the table of all kinds.

A fault's number in results (`faults[0]`) is its place in the list. Its keys in time are in
`emu.scenario.faults.base`, what a target may be in `emu.scenario.faults.targets`, what devices make of it in
`actors.wire.fault`. To add a kind: a section with `target_kind` and `strike`, and a line here.
"""

from __future__ import annotations

from typing import Final

from emu.scenario.faults.base import FaultSection
from emu.scenario.section import Kinds, OneOf

__all__ = ["FAULTS", "FaultSection"]

FAULTS: Final = OneOf(
    "kind",
    Kinds(
        "emu.scenario.faults",
        {
            "link_down": "link_faults:LinkDown",
            "link_up": "link_faults:LinkUp",
            "link_flap": "link_faults:LinkFlap",
            "degrade": "link_faults:Degrade",
            "delay": "link_faults:Delay",
            "port_down": "link_faults:PortDown",
            "pause_storm": "link_faults:PauseStorm",
            "pause_loss": "link_faults:PauseLoss",
            "miscabling": "link_faults:Miscabling",
            "switch_crash": "device_faults:SwitchCrash",
            "switch_reboot": "device_faults:SwitchReboot",
            "switch_drain": "device_faults:SwitchDrain",
            "nic_down": "device_faults:NicDown",
            "nic_port_down": "device_faults:NicPortDown",
            "nic_reset": "device_faults:NicReset",
            "qp_error": "device_faults:QpError",
            "slow_receiver": "device_faults:SlowReceiver",
            "gpu_slow": "device_faults:GpuSlow",
            "gpu_hung": "device_faults:GpuHung",
            "gpu_lost": "device_faults:GpuLost",
            "row_remap": "device_faults:RowRemap",
            "bit_flip": "device_faults:BitFlip",
            "host_lost": "device_faults:HostLost",
            "straggler": "device_faults:Straggler",
            "headroom_drift": "drift:HeadroomDrift",
            "alpha_drift": "drift:AlphaDrift",
            "ecn_drift": "drift:EcnDrift",
            "pfc_drift": "drift:PfcDrift",
            "dscp_drift": "drift:DscpDrift",
            "hash_seed_drift": "drift:HashSeedDrift",
            "hash_fields_drift": "drift:HashFieldsDrift",
            "credit_drift": "drift:CreditDrift",
            "random": "draws:RandomFaults",
        },
    ),
)
