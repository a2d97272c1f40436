"""`emu doctor` notices what is missing, and says what to do about it."""

import resource
import socket
import sys
from pathlib import Path

import pytest

from emu.cli.commands import doctor
from emu.cli.main import main


def test_a_token_is_seen_wherever_ray_looks_for_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert doctor.check_token() == (
        "token",
        "ok",
        "none, and none is needed here; for a cluster: `ray get-auth-token --generate`",
    )
    stored = tmp_path / ".ray" / "auth_token"
    stored.parent.mkdir()
    stored.write_text("secret")
    stored.chmod(0o644)
    assert doctor.check_token()[1:] == ("note", f"others may read {stored}; `chmod 600 {stored}`")
    stored.chmod(0o600)
    assert doctor.check_token()[1:] == ("ok", f"from {stored}")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "another secret")
    assert doctor.check_token()[1:] == ("ok", "from RAY_AUTH_TOKEN")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    _, state, text = doctor.check_token()
    assert state == "note"
    assert "need --unprotected" in text
    assert "secret" not in text


def test_ray_that_is_not_installed_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor.check_ray().state == "ok"
    monkeypatch.setattr(sys, "path", [])
    assert doctor.check_ray() == (
        "ray",
        "fail",
        "not installed; run `make setup`; one process goes without",
    )
    monkeypatch.setattr(doctor, "CHECKS", (doctor.check_ray,))
    assert main(["doctor"]) == 4
    assert capsys.readouterr().out.startswith("fail  ray ")


def test_a_compiler_and_promtool_are_looked_for_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CC", "gcc -pthread")
    monkeypatch.setattr("emu.is_compiled", lambda: True)
    assert doctor.check_compiler()[1:] == (
        "ok",
        "no C compiler (gcc); none is needed, the packet path is compiled",
    )
    monkeypatch.setattr("emu.is_compiled", lambda: False)
    assert doctor.check_compiler()[1:] == (
        "note",
        "no C compiler (gcc); runs interpreted, with the same answers",
    )
    assert doctor.check_promtool().state == "note"
    promtool = tmp_path / "promtool"
    promtool.write_text("#!/bin/sh\n")
    promtool.chmod(0o755)
    assert doctor.check_promtool()[1:] == ("ok", str(promtool))


def test_shared_memory_that_cannot_be_written_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a container that mounts it for root alone: Ray's node then does not come up, for a minute."""
    assert doctor.check_shared_memory().state != "fail"
    monkeypatch.setattr("os.access", lambda path, mode: str(path) != "/dev/shm")
    assert doctor.check_shared_memory().state == "fail"


def test_headers_are_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "cc"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CC", str(compiler))
    monkeypatch.setattr("emu.is_compiled", lambda: False)
    monkeypatch.setattr("sysconfig.get_path", lambda _: str(tmp_path))
    assert doctor.check_compiler()[1:] == (
        "note",
        "no Python headers (Python.h); runs interpreted, with the same answers",
    )
    (tmp_path / "Python.h").touch()
    assert doctor.check_compiler().state == "ok"


def test_ports_are_opened_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tmp_path / "ip_local_port_range"
    kernel.write_text("32768\t60999\n")
    monkeypatch.setattr(doctor, "PORT_RANGE", kernel)
    wide = "127.0.0.1 answers; the kernel gives out 32768 to 60999"
    assert doctor.check_ports() == ("ports", "ok", wide)
    kernel.write_text("50000\t50100\n")
    assert doctor.check_ports().state == "note"

    def refused(*_: object, **__: object) -> None:
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(socket, "create_server", refused)
    assert doctor.check_ports()[1:] == (
        "fail",
        "127.0.0.1 cannot be listened on and reached: Permission denied",
    )


def test_a_temporary_directory_too_long_for_sockets_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("d" * 60)
    long.mkdir()
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(long))
    _, state, text = doctor.check_temporary()
    assert (state, text) == ("fail", f"{long} is too long for Unix sockets; set TMPDIR to a shorter one")


def test_memory_and_open_files_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor.check_memory().state in ("ok", "note")
    monkeypatch.setattr(doctor, "_available_memory_bytes", lambda: 2**30)
    assert doctor.check_memory()[1:] == (
        "note",
        "1.0 GiB available; Ray needs some 1 GiB: use one process, or fewer workers",
    )
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        assert doctor.check_files()[1:] == ("note", "512 open files; `ulimit -n 1024` for many workers")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
