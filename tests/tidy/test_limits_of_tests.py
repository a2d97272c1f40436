"""No test hangs the suite: each has a limit, and its children hear all signals whoever started the suite."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy.tracked import ROOT

IGNORED = """\
import subprocess
from tests import conftest

def test_asks_a_child() -> None:
    told = subprocess.run(["cat", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    (ignored,) = (int(line.split()[1], 16) for line in told.splitlines() if line.startswith("SigIgn"))
    print([number for number in range(1, 32) if ignored >> number - 1 & 1])
"""
WAITS = """\
import threading

def waits_in_another_thread(event: threading.Event) -> None:
    event.wait()

def test_waits_for_ever() -> None:
    never = threading.Event()
    threading.Thread(target=waits_in_another_thread, args=(never,), daemon=True).start()
    never.wait()

def test_comes_after() -> None:
    pass
"""
SPINS = """\
from collections import deque
from itertools import repeat

def test_spins_in_compiled_code() -> None:
    deque(repeat(0), maxlen=0)
"""
LASTS = """\
import time
import pytest

@pytest.mark.timeout(60)
def test_lasts_longer_than_others_may() -> None:
    time.sleep(2)
"""


def ended(place: Path, text: str, *options: str) -> tuple[int, str]:
    """The status and the output of pytest, started with signals ignored and with this project's settings."""
    file = place / "test_alone.py"
    file.write_text(text, encoding="utf-8")
    shell = 'trap "" HUP INT TERM QUIT; exec "$@"'
    pytest_words = [sys.executable, "-m", "pytest", "-c", str(ROOT / "pyproject.toml"), "-s"]
    done = subprocess.run(
        ["sh", "-c", shell, "sh", *pytest_words, "-p", "no:cacheprovider", *options, str(file)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_children_of_tests_ignore_no_signal_whatever_the_parent_ignored(tmp_path: Path) -> None:
    status, said = ended(tmp_path, IGNORED)
    assert (status, "[]" in said) == (0, True), said


def test_every_test_has_a_limit(pytestconfig: pytest.Config) -> None:
    limit_s, last_s = (float(pytestconfig.getini(name)) for name in ("timeout", "faulthandler_timeout"))
    assert 0 < limit_s < last_s <= 600
    assert pytestconfig.getini("faulthandler_exit_on_timeout") is True


def test_a_test_that_waits_for_ever_fails_with_the_stacks_of_all_threads(tmp_path: Path) -> None:
    status, said = ended(tmp_path, WAITS, "--timeout=1")
    assert (status, "1 failed, 1 passed" in said) == (1, True), said
    assert "in waits_in_another_thread" in said


def test_a_test_that_no_signal_reaches_ends_its_process_with_its_stack(tmp_path: Path) -> None:
    status, said = ended(tmp_path, SPINS, "--timeout=1", "-o", "faulthandler_timeout=2")
    assert (status, "in test_spins_in_compiled_code" in said) == (1, True), said


def test_a_longer_limit_of_a_test_moves_what_ends_its_process(tmp_path: Path) -> None:
    short = ("-p", "tests.conftest", "-o", "timeout=0.5", "-o", "faulthandler_timeout=1")
    status, said = ended(tmp_path, LASTS, *short)
    assert (status, "1 passed" in said) == (0, True), said
    marked = SPINS.replace("def ", "import pytest\n\n@pytest.mark.timeout(1)\ndef ")
    status, said = ended(tmp_path, marked, *short)
    assert (status, "Timeout (0:00:01.5" in said, "in test_spins_in_compiled_code" in said) == (
        1,
        True,
        True,
    ), said
