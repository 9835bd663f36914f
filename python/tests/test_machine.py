from __future__ import annotations

from pathlib import Path

import pytest

import rally


def test_a_machine_ends_with_its_context(place: Path) -> None:
    outer = rally.machine("one")
    assert not outer.is_running()
    with outer:
        assert outer.is_running()
        # This one has not started it.
        with rally.machine("one") as inner:
            job = rally.submit("sleep", "1000", n=1, machine=inner)
        assert job.state() in ("waiting", "running")
    assert not outer.is_running()
    with pytest.raises(rally.Failed) as caught:
        outer.status()
    assert caught.value.id == "machine/does-not-run"


def test_status_and_nodes(place: Path) -> None:
    with rally.machine().up(hosts="localhost:3", options=["--lease", "5"]) as machine:
        assert machine.name == "main"
        status = machine.status()
        assert (status.machine, status.nodes, status.usable, status.slots, status.free) == ("main", 1, 1, 3, 3)
        assert (status.waiting, status.running, status.ending, status.trouble) == (0, 0, False, None)
        assert Path(status.directory).is_dir()
        (node,) = machine.nodes()
        assert (node.state, node.slots, node.free, node.jobs, node.reason) == ("up", 3, 3, (), None)
        assert machine.queue() == []
        job = rally.submit("sleep", "1000", n=1)
        with pytest.raises(rally.Failed) as busy:
            machine.down()
        assert busy.value.returncode == 123
        job.cancel()
        machine.down(wait=True)
    # What has waited is still there.
    with machine.up(hosts="localhost:3"):
        assert [info.state for info in machine.queue(over=9)] == ["canceled"]


def test_two_machines(place: Path) -> None:
    with rally.machine("one") as one, rally.machine("two") as two:
        with pytest.raises(rally.Failed) as several:
            rally.submit("true", n=1)
        assert several.value.id == "machine/several"
        for machine in (one, two):
            job = rally.submit("true", n=1, hold=True, machine=machine)
            assert (job.machine, job.id) == (machine.name, 1)
            job.release()
            job.future().result(timeout=60)
        with pytest.raises(rally.Failed) as again:
            rally.machine("one").up()
        assert "runs already" in again.value.headline


def test_jobs_of_slurm_are_not_those_of_a_machine(machine: rally.Machine, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As after a submission to Slurm, whose commands are somewhere in PATH.
    (place.parent / "state" / ".slurm").touch()
    commands = place / "bin"
    commands.mkdir()
    for name in ("squeue", "sbatch"):
        command = commands / name
        command.write_text(f"#!/bin/sh\ntouch {place}/called\n")
        command.chmod(0o755)
    monkeypatch.setenv("PATH", str(commands), prepend=":")
    job = rally.submit("true", n=1, hold=True, machine=machine)
    assert [info.job for info in machine.queue()] == [job.id]
    with pytest.raises(rally.Failed):
        rally.submit("true", n=1, machine=machine, options=["--to", "slurm"])
    assert not (place / "called").exists()
