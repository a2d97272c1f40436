"""What holds for every test: property tests repeat exactly, and large counts run only when asked for.

`make soak` sets EMU_SOAK: hypothesis then draws fresh examples, forty times as many (a failure prints the
blob that repeats it), and the tests marked `soak` run too.
"""

import contextlib
import faulthandler
import gc
import os
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadFileScheduling

import emu
from emu import api
from emu.base.cores import usable_cores
from emu.cli.main import YOUNG

# A parent that ignores SIGINT (`nohup make test &`, many build servers) hands that on to every child, and a
# child that is to end by SIGINT would never end. A signal that has a handler here has none in children.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
for ignorable in (signal.SIGHUP, signal.SIGTERM, signal.SIGQUIT):
    if signal.getsignal(ignorable) == signal.SIG_IGN:
        signal.signal(ignorable, signal.SIG_DFL)

# As the command does: one process makes millions of objects here, and to look at each 700 new ones, and so
# much oftener at all, took a third of the time of some files.
gc.set_threshold(YOUNG, *gc.get_threshold()[1:])

KEEPS = "kept_workers"
"""What files have in them whose tests ask for the fixture of this name."""
KEPT = pytest.StashKey[contextlib.ExitStack]()
WAITING = pytest.StashKey[set[Path]]()
"""The files whose tests wait for Ray."""

SOAK = bool(os.environ.get("EMU_SOAK"))

# Interpreted code takes many times as long: large counts where it is compiled, small ones where it is not.
# A deadline, or a health check on speed, would make the outcome depend on what else the machine does.
settings.register_profile(
    "exact",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=50 if emu.is_compiled() else 15,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak", settings.get_profile("exact"), derandomize=False, max_examples=2000, print_blob=True
)
settings.load_profile("soak" if SOAK else "exact")


@pytest.fixture(scope="session", autouse=True)
def wide() -> Iterator[None]:
    """Sentences that tests look for stay whole; tests of the width set their own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "400")
        yield


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that tests remember is left in the user's cache."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def kept_workers(request: pytest.FixtureRequest) -> Iterator[None]:
    """Ray, started once for all tests that ask for it, and workers that are kept from run to run."""
    with contextlib.ExitStack() as kept:
        kept.enter_context(api.session())
        request.config.stash[KEPT] = kept
        yield


def pytest_xdist_auto_num_workers() -> int:
    """One process more than there are cores: a good part of the time is waiting for Ray."""
    return usable_cores() + 1


def pytest_report_header() -> str:
    """Say what is being tested: a green run of interpreted code says nothing about compiled code."""
    return f"emu {emu.__version__}, packet path {emu.compiled_state()}"


class ByFile(LoadFileScheduling):
    """Each file whole in one process; those that keep Ray's workers all in the same: Ray starts once."""

    @cache  # noqa: B019 - one object, as long as the tests
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return KEEPS if keeps_workers(self.config.rootpath / file) else file


@cache
def keeps_workers(file: Path) -> bool:
    """Whether tests of a file ask for the workers that are kept from run to run."""
    return KEEPS in file.read_text("utf-8")


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFile | None:
    """Share out files as `ByFile` says, where they are shared out whole."""
    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with the files whose tests wait for Ray or take long, so that none is left over at the end; leave
    `soak` to `make soak`.

    Where processes share the tests, they take them in this order.
    """
    waiting = {item.path for item in items if item.get_closest_marker("ray")}
    config.stash[WAITING] = waiting
    long = {item.path for item in items if item.get_closest_marker("long")}
    kept = {path for path in waiting if keeps_workers(path)}
    items.sort(key=lambda item: (item.path not in kept, item.path not in long, item.path not in waiting))
    if SOAK:
        return
    large = [item for item in items if item.get_closest_marker("soak")]
    if large:
        config.hook.pytest_deselected(items=large)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """End Ray after the last file that waits for it: idle it takes a twentieth of a core."""
    yield
    stash = item.config.stash
    if KEPT in stash and nextitem is not None and nextitem.path not in stash[WAITING]:
        stash[KEPT].close()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have what ends a test's process come after the limit of its mark, where that is a longer one."""
    limit_s, last_s = (float(item.config.getini(name)) for name in ("timeout", "faulthandler_timeout"))
    mark = item.get_closest_marker("timeout")
    if mark is not None and mark.args[0] > limit_s:
        stderr = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(mark.args[0] + last_s - limit_s, file=stderr, exit=True)
