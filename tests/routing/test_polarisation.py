"""Which hashes leave paths idle when two tiers hash the same fields?

A fat tree of 4 pods: 8 aggregation switches with two uplinks each. Each is reached from a leaf that has
chosen among two itself; if both choose alike, one uplink of the aggregation switch stays idle.
"""

from pathlib import Path

import pytest

from emu import api

SCENARIO = Path(__file__).parents[2] / "scenarios/routing/polarisation_seeds.yaml"
AGGREGATIONS = 8


def idle_uplinks(hash_name: str, seed: str) -> int:
    """How many uplinks carried nothing."""
    overrides = {"routing.hash": hash_name, "routing.seed": seed}
    return api.run(SCENARIO, overrides=overrides, local=True, diagnose=False).summary.fabric.idle_uplinks


@pytest.mark.parametrize("hash_name", ["crc16", "xor_fold", "toeplitz", "mix"])
def test_with_equal_seeds_every_hash_polarises_everywhere(hash_name: str) -> None:
    assert idle_uplinks(hash_name, "equal") == AGGREGATIONS


@pytest.mark.parametrize("hash_name", ["crc16", "xor_fold", "toeplitz"])
def test_with_differing_seeds_a_linear_hash_polarises_wherever_the_leaves_of_a_pod_agree(
    hash_name: str,
) -> None:
    # Each seed keeps or swaps the two paths; the two leaves of a pod agree in half of the cases.
    assert AGGREGATIONS / 4 <= idle_uplinks(hash_name, "per_switch") < AGGREGATIONS


@pytest.mark.parametrize("hash_name", ["crc16", "xor_fold", "mix"])
def test_with_the_port_of_entry_hashed_as_well_equal_seeds_leave_no_path_idle(hash_name: str) -> None:
    fields = ["src", "dst", "protocol", "udp_source", "udp_destination", "qpn", "ingress_port"]
    overrides = {"routing.hash": hash_name, "routing.seed": "equal", "routing.fields": fields}
    assert api.run(SCENARIO, overrides=overrides, local=True, diagnose=False).summary.fabric.idle_uplinks == 0


def test_with_differing_seeds_a_hash_that_is_not_linear_uses_every_path() -> None:
    assert idle_uplinks("mix", "per_switch") == 0
