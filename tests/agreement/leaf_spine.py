"""The fabric on which independent simulators of lossless RoCE were measured side by side, as a scenario.

Eight hosts a leaf, eight spines, every link 400G and 500 ns, 4,096 B of payload, an ACK per packet in a class
of its own. Switches and NICs have no latency, and the host costs next to nothing: a message between host,
GPU and NIC takes 1 ns
(512 bits at 100 Tbit/s are 6 ps more), a copy of 256 KiB a quarter of one.
"""

from typing import Any

from emu import api
from emu.api import Result
from tests.scenario.plain import plain

HOSTS_PER_LEAF = 8


def scenario(hosts: int, workload: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """One job on a fabric of so many hosts; `sections` replace those given here."""
    given: dict[str, Any] = plain(
        {
            "name": "leaf_spine",
            "topology": {
                "kind": "ai_zone",
                "racks": hosts // HOSTS_PER_LEAF,
                "hosts_per_rack": HOSTS_PER_LEAF,
                "gpus_per_host": 1,
                "spines": 8,
                "link": "400G",
                "nic_delay": "500ns",
                "uplink_delay": "500ns",
            },
            "switch": {"latency": 0},
            "nic": {"latency": 0},
            "transport": {"mtu": 4096, "ack_every": 1, "ack_priority": 6},
            "host": {"link_delay": "1ns", "link_rate": "100T"},
            "gpu": {"copy_rate": "9000T"},
            "jobs": [{"name": "job", "workload": workload}],
        }
    )
    return plain({**given, **sections})


def run(hosts: int, workload: dict[str, Any], **sections: Any) -> Result:
    """Run that, in this process."""
    return api.run(scenario(hosts, workload, **sections), local=True, diagnose=False)
