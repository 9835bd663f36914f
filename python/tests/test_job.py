from __future__ import annotations

import asyncio
import os
import pickle
import signal
import subprocess
import sys
import threading
from concurrent.futures import as_completed
from pathlib import Path

import pytest
from conftest import processes, until

import rally

LONG = ("sleep", "1000")


def test_a_job_runs_without_the_caller(machine: rally.Machine) -> None:
    job = rally.submit("sh", "-c", "echo $RALLY_QUEUE_JOB; printf '\\377'", n=2, name="first")
    assert (job.id, job.machine) == (1, "test")
    info = job.wait()
    assert (info.job, info.name, info.state, info.slots, info.hosts) == (1, "first", "succeeded", 2, (os.uname().nodename,))
    assert info.started is not None and info.ended is not None and info.submitted <= info.started <= info.ended
    assert info.output == str(Path.cwd() / "rally-1.out")
    assert sorted(job.output().replace("\n", "")) == ["1", "1", "\udcff", "\udcff"]
    assert info == job.info() and job == machine.job(1)
    assert job.state() == "succeeded"


def test_a_job_that_fails(machine: rally.Machine) -> None:
    job = rally.submit("sh", "-c", "exit 7", n=1)
    with pytest.raises(rally.JobFailed) as caught:
        job.wait()
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.returncode, error.info.state, error.id) == (7, "failed", "machine/job-failed")
    assert str(error) == "job 1 has failed\n  reason: rank 0 exited with code 7"
    assert isinstance(error, rally.Failed)
    assert job.output() == ""
    with pytest.raises(rally.Failed) as refused:
        rally.submit("true", n=3)
    assert (refused.value.id, refused.value.returncode) == ("machine/not-accepted", 122)
    with pytest.raises(rally.Failed) as unknown:
        machine.job(99).wait()
    assert unknown.value.id == "machine/no-job"


def test_options_are_those_of_the_command(machine: rally.Machine, place: Path) -> None:
    (place / "sub").mkdir()
    job = rally.submit(
        "sh",
        "-c",
        "echo $OWN$MORE; pwd; echo wrong >&2",
        n=1,
        time=90,
        name="a b",
        priority=3,
        hold=True,
        requeue=True,
        exclusive=True,
        output_to="%j.out",
        errors_to="%j.err",
        env={"OWN": "x"},
        cwd="sub",
        machine=machine,
        options=["--set-env", "MORE=y"],
    )
    info = job.info()
    assert (info.state, info.name, info.priority, info.slots) == ("held", "a b", 3, 1)
    assert info.limit is not None and info.limit.total_seconds() == 90
    job.release()
    job.wait()
    assert (place / "sub/1.out").read_text() == job.output() == f"xy\n{place}/sub\n"
    assert job.output(errors=True) == "wrong\n"


def test_holding_canceling_and_dependencies(machine: rally.Machine) -> None:
    first = rally.submit(*LONG, n=2)
    until(lambda: first.state() == "running")
    second = rally.submit("true", n=1, after=first)
    third = rally.submit("true", n=1, after=[f"any:{first.id}", f"any:{second.id}"])
    second.hold()
    assert (second.state(), third.state()) == ("held", "waiting")
    assert [info.job for info in machine.queue()] == [1, 2, 3]
    first.cancel()
    with pytest.raises(rally.JobFailed) as caught:
        first.wait()
    assert (caught.value.returncode, caught.value.info.state) == (143, "canceled")
    with pytest.raises(rally.JobFailed, match="job 2 has been canceled"):
        second.wait()
    third.wait()
    assert [info.job for info in machine.queue(over=2)] == [2, 3]


def test_arrays(machine: rally.Machine) -> None:
    script = "echo $RALLY_ARRAY_INDEX; test $RALLY_ARRAY_INDEX != 3"
    job = rally.submit("sh", "-c", script, n=1, array=[5, 1, 2, 3], max_running=1)
    with pytest.raises(rally.JobFailed) as caught:
        job.wait()
    tasks = caught.value.info.tasks
    assert tasks == rally.TaskCounts(waiting=0, running=0, succeeded=3, failed=1, canceled=0, failed_indexes="3")
    assert caught.value.facts["tasks"] == "3"
    assert (job.output(), job.output(5)) == ("1\n2\n3\n5\n", "5\n")
    long = rally.submit(*LONG, n=1, array=range(3))
    long.cancel([2])
    until(lambda: (tasks := long.info().tasks) is not None and (tasks.canceled, tasks.running) == (1, 2))
    long.cancel()
    for wrong in ([], [-1]):
        with pytest.raises(ValueError):
            rally.submit("true", array=wrong)


def test_waiting_has_an_end(machine: rally.Machine) -> None:
    job = rally.submit(*LONG, n=1)
    with pytest.raises(TimeoutError, match="goes on"):
        job.wait(timeout=0.01)
    assert job.state() == "running"


def test_output_is_followed(machine: rally.Machine, place: Path) -> None:
    script = "echo first; until test -e go; do sleep 0.01; done; printf last"
    job = rally.submit("sh", "-c", script, n=1)
    lines = job.follow()
    assert next(lines) == "first"
    (place / "go").touch()
    assert list(lines) == ["last"]
    given_up = rally.submit("sh", "-c", "echo begun; exec sleep 1000", n=1)
    lines = given_up.follow()
    assert next(lines) == "begun"
    lines.close()  # type: ignore[attr-defined]
    assert given_up.state() == "running"


def test_futures_of_many_jobs(machine: rally.Machine) -> None:
    """Two slots and 40 jobs, of which the first ends last: no process for each job, and one thread."""
    first = rally.submit("sh", "-c", "until test -e go; do sleep 0.01; done", n=1)
    jobs = [rally.submit("sh", "-c", f"exit {number % 4}", n=1) for number in range(40)]
    late = first.future()
    futures = {job.future(): number for number, job in enumerate(jobs)}
    most = 0
    for future in as_completed(futures, timeout=60):
        most = max(most, sum(" wait " in line for line in processes(os.environ["RALLY_STATE_DIR"]).values()))
        error = future.exception()
        code = futures[future] % 4
        if code == 0:
            assert error is None and future.result().state == "succeeded"
        else:
            assert isinstance(error, rally.JobFailed) and error.returncode == code
    assert most <= 2
    assert sum("rally wait" in thread.name for thread in threading.enumerate()) == 1
    assert not late.done()
    Path("go").touch()
    assert late.result(timeout=60).job == first.id
    until(lambda: not any("rally wait" in thread.name for thread in threading.enumerate()))


def test_futures_of_more_jobs_than_are_asked_for(machine: rally.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rally._future._ASKED_MAX", 4)
    gate = rally.submit("true", n=1, hold=True)
    jobs = [rally.submit("true", n=1, after=gate) for _ in range(20)]
    futures = [job.future() for job in jobs]
    gate.release()
    assert [future.result(timeout=60).job for future in futures] == [job.id for job in jobs]


def test_a_future_is_a_wait(machine: rally.Machine) -> None:
    job = rally.submit(*LONG, n=1)
    future = job.future()
    assert future.cancel()
    assert job.state() == "running"
    unknown = machine.job(99).future()
    error = unknown.exception(timeout=60)
    assert isinstance(error, rally.Failed) and error.id == "machine/no-job"
    lost = job.future()
    machine.down(now=True)
    assert isinstance(lost.exception(timeout=60), rally.Failed)
    machine.up(hosts="localhost:2")


def test_asyncio(machine: rally.Machine) -> None:
    async def both() -> "list[str]":
        jobs = [rally.submit("echo", text, n=1) for text in ("a", "b")]
        await asyncio.gather(*(asyncio.wrap_future(job.future()) for job in jobs))
        return [job.output() for job in jobs]

    async def impatient(job: rally.Job) -> None:
        await asyncio.wait_for(asyncio.wrap_future(job.future()), 0.01)

    assert asyncio.run(both()) == ["a\n", "b\n"]
    job = rally.submit(*LONG, n=1)
    with pytest.raises(asyncio.TimeoutError):
        asyncio.run(impatient(job))
    assert job.state() == "running"


@pytest.mark.parametrize("wait", ["job.wait()", "job.future().result()", "list(job.follow())"])
def test_an_interrupt_leaves_the_job(machine: rally.Machine, wait: str) -> None:
    job = rally.submit(*LONG, n=1)
    program = f"import rally\njob = rally.machine().job({job.id})\nprint('ready', flush=True)\n{wait}"
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    verb = "output" if "follow" in wait else "wait"
    until(lambda: any(f" {verb} " in line for line in processes(os.environ["RALLY_STATE_DIR"]).values()))
    process.send_signal(signal.SIGINT)
    if "future" in wait:
        # Python sometimes loses a signal that comes while another thread starts a process.
        def has_ended() -> bool:
            process.send_signal(signal.SIGINT)
            return process.poll() is not None

        until(has_ended)
    _, stderr = process.communicate(timeout=60)
    last = stderr.decode().splitlines()[-1]
    if "future" in wait:
        assert "KeyboardInterrupt" in stderr.decode()
    else:
        assert last == "KeyboardInterrupt: job 1 goes on: `rally cancel 1` ends it"
    assert job.state() == "running"
    # Python has ended, and so has `rally wait`.
    until(lambda: not any(f" {verb} " in line for line in processes(os.environ["RALLY_STATE_DIR"]).values()))


def test_a_fork_has_threads_of_its_own(machine: rally.Machine) -> None:
    job = rally.submit(*LONG, n=1)
    future = job.future()
    program = rally.submit("true", n=1)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if program.future().result(timeout=60).state == "succeeded" else 1
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    job.cancel()
    assert isinstance(future.exception(timeout=60), rally.JobFailed)
