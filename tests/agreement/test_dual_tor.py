"""Do the two ports of a NIC fill as unevenly, and as evenly, as HPN's authors saw it (SIGCOMM'24, section 4)?

They saw three times as much on one port as on the other where all leaves share the aggregation switches, and
even loads in two planes.
"""

import pytest

from emu import api
from emu.doors.reproduce.published import uneven_ports


def test_hashes_load_one_port_of_a_nic_three_times_as_much_as_the_other_and_planes_do_not() -> None:
    # Two queue pairs a NIC: hashed, half of the NICs have 2 and 0, half 1 and 1: 1.5 over 0.5.
    assert uneven_ports(api.run("dual_tor_planes", local=True).summary) == pytest.approx(3, abs=1)
    assert uneven_ports(api.run("dual_tor_two_planes", local=True).summary) == pytest.approx(1, rel=0.05)
