"""Does the library go by what the sections of a scenario say?"""

from typing import Any

import pytest

from actors.ncclx.settings import Cut, Settings
from emu.devices.plan import settings_of
from emu.scenario.resolve import build_topology
from tests.ncclx.toy import collective, scenario

KIB = 1024


def settings(job: dict[str, Any] | None = None, **sections: Any) -> Settings:
    made = scenario([collective("all_reduce", "1MiB") | (job or {})], **sections)
    return settings_of(made, build_topology(made), 0)


def test_by_default_a_channel_buffer_is_cut_as_nccl_cuts_it() -> None:
    """NCCL 2.30: 4 MiB in 8 slots, slices of 2 slots, chunks of 4."""
    found = settings()
    assert (found.step_bytes, found.slice_bytes, found.chunk_bytes) == (512 * KIB, 1024 * KIB, 2048 * KIB)
    assert found.cut(point_to_point=False) == found.cut(point_to_point=True) == Cut(1024 * KIB, 4, 2048 * KIB)


def test_sends_and_receives_have_a_slot_for_each_slice_of_p2p_chunk() -> None:
    found = settings(ncclx={"p2p_chunk": "128KiB"})
    assert found.cut(point_to_point=False) == Cut(1024 * KIB, 4, 2048 * KIB)
    assert found.cut(point_to_point=True) == Cut(128 * KIB, 8, 512 * KIB)
    assert settings(ncclx={"p2p_chunk": "1MiB"}).cut(point_to_point=True).slice_bytes == 512 * KIB


@pytest.mark.parametrize(("switches", "limit"), [(0, 7), (1, 7), (2, 5), (3, 5), (4, 0), (7, 0)])
def test_a_limit_on_what_is_outstanding_goes_by_distance(switches: int, limit: int) -> None:
    given = {"rack": "7B", "zone": "5B"}
    assert settings(ncclx={"outstanding": given}).outstanding.at_distance(switches) == limit
    far = settings(ncclx={"outstanding": {**given, "connection": "3B"}})
    assert far.outstanding.at_distance(switches) == (limit or 3)


def test_a_job_may_have_a_class_of_its_own_and_clear_to_sends_the_data_s() -> None:
    assert (settings().data_priority, settings().control_priority) == (3, 6)
    found = settings({"data_priority": 2}, ncclx={"control": "data_class"})
    assert (found.data_priority, found.control_priority) == (2, None)
