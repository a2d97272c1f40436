"""Section `run.trace`: which queue pairs write down what they do over time."""

from typing import Annotated, Final

from emu.base.records import Field
from emu.base.units import parse_time
from emu.scenario.section import Section
from emu.scenario.sections.overrides import Devices
from emu.scenario.yaml.values import PositiveTimePs, names

TRACES_ACCEPTED: Final = 'a NIC that sends, SOURCE:DESTINATION like "nic-0-0:nic-1-0", or a pattern of them'


class FlowTraceSection(Section):
    """A trace of queue pairs, as `trace.csv` of the run directory."""

    flows: Devices | None = None
    """Queue pairs: "nic-0-0" (all that send from it), "nic-0-0:nic-1-0" (from the first to the second), a
    pattern, or a list. Default: none."""
    every_ps: PositiveTimePs = parse_time("1us")
    """A row for each queue pair in each interval so long in which a packet of it leaves, or is
    acknowledged."""
    most_rows: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Rows kept of each NIC; `emu run` says how many are missing."""

    def follows(self, source: str, destination: str) -> bool:
        """Whether queue pairs from one NIC to another are traced."""
        patterns = self.flows or ()
        return names(patterns, source) or names(patterns, f"{source}:{destination}")
