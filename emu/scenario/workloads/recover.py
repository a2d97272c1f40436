"""Section `jobs[].recover`: how a job goes on without ranks that it loses."""

from typing import Annotated

from emu.base.records import Field
from emu.scenario.section import Section
from emu.scenario.yaml.values import AutoPositiveTimePs


class RecoverSection(Section):
    """A job that goes on when it loses a rank, or all ranks of a server, to whatever fault. The controller
    finds out who is lost; the others abort their communicators and do the operation or step again with
    others, as under a coordinator of NCCLX's fault-tolerant all_reduce. Of training, replicas go without
    those that lose a rank."""

    wait_ps: AutoPositiveTimePs = None
    """Time that the controller waits for reports after the first failure; a rank without a report then is
    lost. `auto`: `ncclx.watchdog`, after which all survivors have given up too."""
    spares: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(max_length=1024)] = ()
    """Ranks that take no part until others are lost, and then take their places, in this order
    (ncclCommInitRank). Without enough of them the communicator shrinks."""
    rejoin: bool = False
    """Whether ranks whose host comes back join again, once for each of `losses`, when the next operation
    begins."""
    losses: Annotated[int, Field(ge=1, le=4)] = 1
    """Losses, one after another, after which the job can continue: each set of so many ranks has
    communicators without it from the beginning."""
