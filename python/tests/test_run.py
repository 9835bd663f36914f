from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import until

import rally


def test_output_is_captured(place: Path) -> None:
    done = rally.run("sh", "-c", "echo out; echo err >&2", n=2, capture=True)
    assert done == rally.Completed(0, "out\nout\n", "err\nerr\n")


def test_output_is_passed_on(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    done = rally.run("sh", "-c", "echo out; printf err >&2", n=1)
    assert done == rally.Completed(0)
    assert capfd.readouterr() == ("out\n", "err")


def test_output_goes_to_a_notebook(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The streams of notebooks have no bytes below, and are no descriptors."""

    class Cell:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None:
            pass

    cell = Cell()
    monkeypatch.setattr(sys, "stdout", cell)
    rally.run("printf", "a\udcffb", n=1)
    assert cell.text == "a\ufffdb"


def test_arguments_and_output_are_bytes(place: Path) -> None:
    every = bytes(range(1, 256))
    done = rally.run("printf", "%s", every, n=1, capture=True)
    assert done.stdout.encode("utf-8", "surrogateescape") == every
    done = rally.run("cat", n=1, capture=True, input=done.stdout)
    assert done.stdout.encode("utf-8", "surrogateescape") == every
    done = rally.run("echo", "--option", "-n", "", Path("a b"), n=1, capture=True)
    assert done.stdout == "--option -n  a b\n"
    with pytest.raises(ValueError, match="separates the programs"):
        rally.run("echo", ":")


def test_a_failure_has_the_message(place: Path) -> None:
    with pytest.raises(rally.Failed) as caught:
        rally.run("sh", "-c", "echo last words >&2; exit 3", n=1, capture=True)
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.returncode, error.id, error.stderr) == (3, "job/rank-failed", "last words\n")
    assert "exited with code 3" in str(error)
    with pytest.raises(rally.Failed) as caught:
        rally.run("./missing")
    assert (caught.value.id, caught.value.returncode) == ("start/no-program", 127)
    assert caught.value.facts["effect"] == "the job was not started"
    with pytest.raises(rally.Failed) as caught:
        rally.run("true", n=3, options=["--host", "localhost:1"])
    assert caught.value.help is not None and "-n 1" in caught.value.help
    assert str(caught.value).splitlines()[0] == "not enough slots: the job needs 3, there is 1"
    assert rally.run("false", n=1, check=False).returncode == 1
    assert rally.run("sh", "-c", "kill -9 $$", n=1, check=False).returncode == 137


def test_a_time_limit_ends_the_job(place: Path) -> None:
    with pytest.raises(rally.TimedOut) as caught:
        rally.run("sh", "-c", "echo begun; exec sleep 1000", n=1, timeout=0.5, capture=True, check=False)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.returncode, caught.value.stdout) == (124, "begun\n")


def test_the_environment_and_the_directory(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "1")
    (place / "sub").mkdir()
    script = 'echo "$INHERITED $OWN $RALLY_OWN"; pwd'
    done = rally.run("sh", "-c", script, n=1, env={"OWN": "a\udcff", "RALLY_OWN": "2"}, cwd="sub", capture=True)
    assert done.stdout == f"1 a\udcff 2\n{place / 'sub'}\n"
    with pytest.raises(ValueError, match="name of a variable"):
        rally.run("true", env={"A=B": ""})


def test_a_job_on_a_machine(machine: rally.Machine) -> None:
    done = rally.run("sh", "-c", "echo $RALLY_QUEUE_JOB", n=2, machine=machine, capture=True)
    assert done.stdout == "1\n1\n"
    assert [message.id for message in done.messages] == ["machine/used"]


@pytest.mark.parametrize("ends", [True, False])
def test_an_interrupt_is_passed_on(place: Path, ends: bool) -> None:
    """The ranks may end as they like, and the second one kills those that do not."""
    script = f"trap 'echo got; : > got; {'exit 0' if ends else ''}' INT; : > begun; while :; do sleep 0.01; done"
    program = f"import rally\nrally.run('sh', '-c', {script!r}, n=1)"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # As a kernel of a notebook: without a terminal that would send the signal to `rally` as well.
        start_new_session=True,
    )
    until((place / "begun").exists)
    process.send_signal(signal.SIGINT)
    until((place / "got").exists)
    if not ends:
        process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert b"KeyboardInterrupt: the job was interrupted" in stderr
    assert stdout == b"got\n"


def test_a_reader_that_fails_ends_the_job(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def write(self, text: str) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            pass

    monkeypatch.setattr(sys, "stdout", Broken())
    with pytest.raises(BrokenPipeError):
        rally.run("sh", "-c", "echo; exec sleep 1000", n=1)


def test_standard_input_is_not_read(place: Path) -> None:
    reader, writer = os.pipe()
    saved = os.dup(0)
    try:
        os.dup2(reader, 0)
        # `writer` stays open: whoever reads the pipe waits for ever.
        assert rally.run("cat", n=1, capture=True, timeout=60).stdout == ""
    finally:
        os.dup2(saved, 0)
        for descriptor in (reader, writer, saved):
            os.close(descriptor)
