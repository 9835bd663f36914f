"""A private directory for each test, with its machines, of which nothing may be left."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Callable, Dict, Iterator, Optional

import pytest

import rally

# Programs that the tests start get these signals, also if somebody runs the tests in the background, where a shell ignores them.
signal.signal(signal.SIGINT, signal.default_int_handler)
for ignored in (signal.SIGHUP, signal.SIGQUIT):
    signal.signal(ignored, signal.SIG_DFL)

# Seconds. Nothing here takes long, except on a very busy computer.
DEADLINE = 60.0


def until(condition: Callable[[], bool]) -> None:
    """Waits until a condition holds."""
    end = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < end, "it has taken too long"
        time.sleep(0.01)


def processes(mark: str) -> Dict[int, str]:
    """Returns the other processes with this text in their environment."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            # It has ended, or is another user's.
            continue
    return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory whose machines and processes are found again."""
    work, state, temporary = tmp_path / "work", tmp_path / "state", tmp_path / "tmp"
    for directory in (work, state, temporary):
        directory.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("RALLY_STATE_DIR", str(state))
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.delenv("RALLY_MACHINE", raising=False)
    yield work
    until(lambda: not processes(str(state)))
    assert not list(temporary.iterdir())


@pytest.fixture
def machine(place: Path) -> Iterator[rally.Machine]:
    """A machine with two slots."""
    with rally.machine("test").up(hosts=["localhost:2"]) as machine:
        yield machine


def code(error: "pytest.ExceptionInfo[rally.Failed]") -> Optional[int]:
    return error.value.returncode
