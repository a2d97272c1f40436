"""The workload `lanes`."""

from collections.abc import Sequence
from typing import Annotated, Literal

from emu.base.records import Field
from emu.scenario.workloads.flows import FlowsWorkload
from emu.scenario.workloads.workload import Site
from emu.scenario.yaml.values import PositiveSizeBytes
from emu.workload.flows import Flow


class Lanes(FlowsWorkload):
    """Each rank sends to the one `shift` places on."""

    kind: Literal["lanes"] = "lanes"
    """Each rank sends to the one `shift` places on."""
    size_bytes: PositiveSizeBytes
    """Bytes of each flow."""
    shift: Annotated[int, Field(ge=1, le=1023)] = 1
    """Places between sender and receiver."""

    def drawn(self, site: Site) -> Sequence[Flow]:
        """A flow of each rank."""
        ranks = len(site.gpus)
        return [Flow(rank, (rank + self.shift) % ranks, self.size_bytes) for rank in range(ranks)]
