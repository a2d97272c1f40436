"""Section `faults`: the table of all kinds.

A fault's number in results (`faults[0]`) is its place in the list. Its keys in time are in
`emu.scenario.faults.base`, what a target may be in `emu.scenario.faults.targets`, what devices make of it in
`actors.wire.fault`. To add a kind: a section with `aim` and `strike`, and a line here.
"""

from __future__ import annotations

from typing import Final

from emu.scenario.faults.base import FaultSection
from emu.scenario.faults.device_faults import (
    BitFlip,
    GpuHung,
    GpuLost,
    GpuSlow,
    HostLost,
    NicDown,
    NicPortDown,
    NicReset,
    QpError,
    RowRemap,
    SlowReceiver,
    Straggler,
    SwitchCrash,
    SwitchDrain,
    SwitchReboot,
)
from emu.scenario.faults.draws import RandomFaults
from emu.scenario.faults.drift import (
    AlphaDrift,
    CreditDrift,
    DscpDrift,
    EcnDrift,
    HashFieldsDrift,
    HashSeedDrift,
    HeadroomDrift,
    PfcDrift,
)
from emu.scenario.faults.link_faults import (
    Degrade,
    Delay,
    LinkDown,
    LinkFlap,
    LinkUp,
    Miscabling,
    PauseLoss,
    PauseStorm,
    PortDown,
)
from emu.scenario.section import OneOf

__all__ = ["FAULTS", "FaultSection", "LinkDown", "LinkUp", "Miscabling", "RandomFaults"]

FAULTS: Final = OneOf(
    "kind",
    {
        "link_down": LinkDown,
        "link_up": LinkUp,
        "link_flap": LinkFlap,
        "degrade": Degrade,
        "delay": Delay,
        "port_down": PortDown,
        "pause_storm": PauseStorm,
        "pause_loss": PauseLoss,
        "miscabling": Miscabling,
        "switch_crash": SwitchCrash,
        "switch_reboot": SwitchReboot,
        "switch_drain": SwitchDrain,
        "nic_down": NicDown,
        "nic_port_down": NicPortDown,
        "nic_reset": NicReset,
        "qp_error": QpError,
        "slow_receiver": SlowReceiver,
        "gpu_slow": GpuSlow,
        "gpu_hung": GpuHung,
        "gpu_lost": GpuLost,
        "row_remap": RowRemap,
        "bit_flip": BitFlip,
        "host_lost": HostLost,
        "straggler": Straggler,
        "headroom_drift": HeadroomDrift,
        "alpha_drift": AlphaDrift,
        "ecn_drift": EcnDrift,
        "pfc_drift": PfcDrift,
        "dscp_drift": DscpDrift,
        "hash_seed_drift": HashSeedDrift,
        "hash_fields_drift": HashFieldsDrift,
        "credit_drift": CreditDrift,
        "random": RandomFaults,
    },
)
