"""What can be swept: a scenario, or a file that a door follows without packets (a campaign, a job mix).

A subject is read once. It makes its file again with other values, and carries out one run of it, here or on a
node of a cluster that has none of the files.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tarfile import open as open_tar
from typing import Any, Final, NamedTuple, Protocol

from actors.kernel.counters import NIC_RETRANSMITTED_FRAMES, PFC_PAUSED_PS
from emu.base.errors import EmuError, ScenarioError, UsageError
from emu.base.shipped import CAMPAIGNS, JOB_MIXES, files_of, is_name, scenario_named, scenario_names
from emu.base.side_by_side import Ended, Ready
from emu.devices.pricing.estimate import Estimate
from emu.engine.outcome import RunOptions
from emu.preparing import Prepared, prepare
from emu.results.summary import Summary
from emu.run_directory.run_directory import RunDirectory
from emu.scenario.dump import to_yaml
from emu.scenario.load import STANDARD_INPUT, Loaded, load_mapping, load_text, read_file
from emu.scenario.set_options import VARIANT, Override
from emu.scenario.yaml.document import MAX_FILE_BYTES, decode, read_document
from emu.summary.verdict import of_diagnosis, value_at
from emu.sweeps.sweep_table import Row, busiest_uplink

NO_EXPECT: Final = "expect=[]"


class Planned(NamedTuple):
    """A run: its number from 1, the value of each axis as written, and those values as overrides."""

    number: int
    settings: tuple[str, ...]
    overrides: list[Override]


class Done(NamedTuple):
    """What came of a run."""

    row: Row
    reasons: Mapping[str, str] = {}
    """By path, why it leads nowhere."""
    defaults: tuple[str, ...] = ()
    """What is shown if nothing was asked for."""


class Asked(NamedTuple):
    """What is asked of each run."""

    run: Callable[..., Any]
    """Carries out what was prepared: `emu.api.run_prepared`, which knows more than this room."""
    paths: tuple[str, ...] = ()
    """Places in the summary that are shown; none for what says most of such a run."""
    out: Path | None = None
    """Where run N is kept, in `run-N`."""
    force: bool = False
    """Whether it may replace an earlier one there."""
    options: RunOptions = RunOptions(local=True, metrics=False)
    """How a run of a scenario is carried out."""


class Subject(Protocol):
    """What is swept."""

    def seed(self, overrides: Sequence[Override]) -> int:
        """The seed that the file has with these overrides. Raises EmuError."""

    def text(self, overrides: Sequence[Override]) -> str:
        """All that a run with these overrides depends on. Raises EmuError."""

    def asked_again(self) -> dict[str, str]:
        """What makes this subject again in another process (`subject_of`)."""

    def cost(self, overrides: Sequence[Override]) -> Estimate | None:
        """What a run will take; None where that is not known, or nothing. Raises EmuError."""

    def run(self, asked: Asked, planned: Planned) -> Done:
        """Carry out one run; what is wrong with it is in its row. UsageError for a place that is not free."""

    def ready(self, asked: Asked, planned: Planned) -> Ready | Ended:
        """The same for a node of a cluster: what `there` takes."""

    def there(self, asked: Asked) -> Any:
        """What is called on a node with what `ready` made: it returns what `kept` takes."""

    def kept(self, asked: Asked, planned: Planned, found: Any) -> Done:
        """What came of a run on a node; its files, if they are kept, are put in their place."""


def failed(planned: Planned, error: EmuError, seed: int | None = None) -> Done:
    """The row of a run that could not begin, or was lost."""
    if isinstance(error, ScenarioError):
        message = "; ".join(str(one) for one in error.problems)
    else:
        message = str(error).partition("\n")[0] or type(error).__name__
    return Done(Row(planned.settings, seed, error.exit_status, message=message))


class ScenarioSubject:
    """A scenario, by its text or mapping; `always` are overrides of every run."""

    def __init__(
        self,
        source: str | Mapping[str, object],
        variant: str = "",
        always: Sequence[Override] = (),
        file: str = "<text>",
        directory: Path = Path(),
    ) -> None:
        self._source = source
        self._variant = variant
        self._always = list(always)
        self._file = file
        self._directory = directory
        self._costs: dict[str, Estimate | None] = {}

    def loaded(self, overrides: Sequence[Override]) -> Loaded:
        """The scenario with these overrides. Raises ScenarioError."""
        chosen = [str(one.value.value) for one in overrides if one.path == (VARIANT,)]
        rest = [*self._always, *(one for one in overrides if one.path != (VARIANT,))]
        variant = chosen[0] if chosen else self._variant
        if isinstance(self._source, str):
            return load_text(self._source, self._file, self._directory, rest, variant)
        return load_mapping(self._source, self._directory, rest, variant)

    def seed(self, overrides: Sequence[Override]) -> int:
        """As of `Subject`."""
        return self.loaded(overrides).scenario.seed

    def text(self, overrides: Sequence[Override]) -> str:
        """As of `Subject`."""
        return to_yaml(self.loaded(overrides).scenario)

    def asked_again(self) -> dict[str, str]:
        """As of `Subject`; of a mapping its effective text."""
        text = self._source if isinstance(self._source, str) else self.text([])
        where = str(self._directory.resolve())
        return {
            "kind": "scenario",
            "text": text,
            "file": self._file,
            "directory": where,
            "variant": self._variant,
        }

    def cost(self, overrides: Sequence[Override]) -> Estimate | None:
        """As of `Subject`; remembered, since seeds cost alike."""
        key = repr([one[:2] for one in overrides if one.path != ("seed",)])
        if key not in self._costs:
            self._costs[key] = prepare(self.loaded(overrides)).cost
        return self._costs[key]

    def run(self, asked: Asked, planned: Planned) -> Done:
        """As of `Subject`."""
        seed: int | None = None
        try:
            loaded = self.loaded(planned.overrides)
            seed = loaded.scenario.seed
            return _run(asked, planned.number, planned.settings, prepare(loaded))
        except UsageError:
            raise
        except EmuError as error:
            return failed(planned, error, seed)

    def ready(self, asked: Asked, planned: Planned) -> Ready | Ended:
        """As of `Subject`: the effective scenario, which depends on no file."""
        seed: int | None = None
        try:
            loaded = self.loaded(planned.overrides)
            seed = loaded.scenario.seed
            prepare(loaded)  # what does not fit is told with its line, which a node would not know
            cost = self.cost(planned.overrides)
        except EmuError as error:
            return Ended(0, (failed(planned, error, seed), b""))
        place = None if asked.out is None else asked.out / f"run-{planned.number}"
        if place is not None and place.exists() and not asked.force:
            raise UsageError(
                f"{place}: holds the results of an earlier run; accepted: another --out, or --force"
            )
        item = planned.number, planned.settings, to_yaml(loaded.scenario)
        return Ready(item, 0 if cost is None else cost.memory_bytes)

    def there(self, asked: Asked) -> Any:
        """As of `Subject`."""
        return partial(_run_there, asked._replace(out=None), asked.out is not None)

    def kept(self, asked: Asked, planned: Planned, found: Any) -> Done:
        """As of `Subject`."""
        done, files = found
        if asked.out is not None and files:
            place = asked.out / f"run-{planned.number}"
            if place.exists():
                shutil.rmtree(place)
            with open_tar(fileobj=BytesIO(files)) as packed:
                packed.extractall(place, filter="data")
        assert isinstance(done, Done)
        return done


def _run(asked: Asked, number: int, settings: tuple[str, ...], prepared: Prepared) -> Done:
    """One run of a scenario."""
    if asked.out is None:
        result = asked.run(prepared, asked.options, diagnose=of_diagnosis(asked.paths))
    else:
        place = asked.out / f"run-{number}"
        with RunDirectory.create(prepared.scenario.name, place, force=asked.force) as directory:
            result = asked.run(prepared, asked.options, None, directory)
    message = result.outcome.message
    if not message and result.lost_jobs():
        message = f"did not succeed: {', '.join(result.lost_jobs())}"
    if result.exit_status == 1:
        broken = [one for one in result.summary.expectations if not one.passed]
        message = "; ".join(f"{one.value}: {one.reason}" for one in broken)
        message = message or f"came out wrong: {', '.join(result.wrong_jobs())}"
    defaults = default_paths(result.summary)
    plain = result.summary.plain()
    found = {path: value_at(path, plain) for path in asked.paths or defaults}
    row = Row(
        settings,
        prepared.scenario.seed,
        result.exit_status,
        result.summary.digest,
        {path: value for path, (value, _) in found.items()},
        message,
        busiest_uplink(result.summary),
    )
    return Done(row, {path: reason for path, (_, reason) in found.items()}, defaults)


def _run_there(asked: Asked, keeps: bool, item: tuple[int, tuple[str, ...], str]) -> tuple[Done, bytes]:
    """On a node: the row, and the files of the run where they are kept, packed."""
    number, settings, text = item
    prepared = prepare(load_text(text))
    if not keeps:
        return _run(asked, number, settings, prepared), b""
    with tempfile.TemporaryDirectory(prefix="emu-run-") as place:
        done = _run(asked._replace(out=Path(place)), number, settings, prepared)
        packed = BytesIO()
        with open_tar(fileobj=packed, mode="w:gz", compresslevel=1) as tar:
            tar.add(Path(place) / f"run-{number}", arcname=".")
        return done, packed.getvalue()


def default_paths(summary: Summary) -> tuple[str, ...]:
    """What says most about a run of this scenario."""
    paths: list[str] = []
    for name, job in summary.jobs.items():
        paths.append(f"jobs.{name}.end_ps")
        if job.collectives:
            paths.append(f"jobs.{name}.collectives[-1].busbw")
    return (*paths, "drops.total", f"fabric.{PFC_PAUSED_PS}", f"fabric.{NIC_RETRANSMITTED_FRAMES}")


OTHER_KINDS: Final[Mapping[str, str]] = {
    "campaign": "emu.doors.weeks.swept:CampaignSubject",
    "job mix": "emu.doors.weeks.swept:JobMixSubject",
}
"""A kind of file that a door sweeps -> module and class, loaded when such a file is met."""


def kind_of(given: str) -> str:
    """Which of the other kinds a file or name is; empty of a scenario."""
    for folder, kind in ((CAMPAIGNS, "campaign"), (JOB_MIXES, "job mix")):
        if is_name(given) and not Path(given).exists() and given in files_of(folder):
            return "" if given in scenario_names() else kind
    path = Path(given)
    if given == STANDARD_INPUT or not path.is_file():
        return ""
    try:
        tree, _ = read_document(decode(read_file(path), given), given)
    except ScenarioError:
        return ""
    keys = tree.value if isinstance(tree.value, dict) else {}
    if "lasts" not in keys:
        return ""
    return "campaign" if "gpus" in keys else "job mix"


def scenario_subject(
    source: str | Path | Mapping[str, object], variant: str = "", always: Sequence[Override] = ()
) -> ScenarioSubject:
    """A scenario by its file, name, "-" for standard input, or mapping. Raises ScenarioError."""
    if isinstance(source, Mapping):
        return ScenarioSubject(source, variant, always, "<mapping>")
    if str(source) == STANDARD_INPUT:
        text = decode(sys.stdin.buffer.read(MAX_FILE_BYTES + 1), "<stdin>")
        return ScenarioSubject(text, variant, always, "<stdin>")
    named, of_name = scenario_named(str(source))
    path = Path(named)
    text = decode(read_file(path), str(path))
    return ScenarioSubject(text, variant or of_name, always, str(path), path.parent)


def other_subject(kind: str, path: Path, always: Sequence[Override]) -> Subject:
    """A file of another kind, by the door that knows it."""
    module, _, name = OTHER_KINDS[kind].partition(":")
    found: Subject = getattr(import_module(module), name)(path, list(always))
    return found


def subject_again(plain: Mapping[str, str], always: Sequence[Override]) -> Subject:
    """The subject that `asked_again` described. Raises EmuError."""
    if plain["kind"] == "scenario":
        return ScenarioSubject(
            plain["text"], plain["variant"], always, plain["file"], Path(plain["directory"])
        )
    return other_subject(plain["kind"], Path(plain["file"]), always)


def fingerprint(text: str) -> str:
    """What tells texts apart, in a line."""
    return hashlib.sha256(text.encode()).hexdigest()
