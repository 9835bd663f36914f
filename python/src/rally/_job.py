"""`submit` and `Job`: jobs that run without the caller."""

from __future__ import annotations

import subprocess
from concurrent.futures import Future
from typing import Iterable, Iterator, List, Mapping, Optional, Sequence, Union

from ._call import (
    Argument,
    Failed,
    Message,
    PathName,
    call,
    command,
    decoded,
    failed,
    objects,
    program_words,
    started,
    variables,
)
from ._machine import Machine, machine_name
from ._row import JobInfo, State, job_info
from ._run import Duration, duration


class JobFailed(Failed):
    """A job that was waited for has failed, or was canceled."""

    def __init__(self, returncode: int, info: JobInfo) -> None:
        what = "been canceled" if info.state == "canceled" else "failed"
        facts = {}
        if info.tasks is not None and info.tasks.failed_indexes:
            facts["tasks"] = info.tasks.failed_indexes
        if info.reason is not None:
            facts["reason"] = info.reason
        super().__init__(returncode, [Message("machine/job-failed", "error", f"job {info.job} has {what}", facts)])
        # What makes a copy, in another process too.
        self.args = (returncode, info)
        self.info = info


class Job:
    """A job in the queue of a machine."""

    def __init__(self, number: int, machine: Union[str, Machine, None] = None) -> None:
        self.id = number
        self.machine = machine_name(machine)

    def __repr__(self) -> str:
        return f"rally.Job({self.id}, {self.machine!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.id, self.machine) == (other.id, other.machine)

    def __hash__(self) -> int:
        return hash((self.id, self.machine))

    def _call(self, verb: str, *words: Argument) -> bytes:
        return call(verb, [*words, str(self.id)], self.machine)

    def info(self) -> JobInfo:
        """Returns everything that the machine knows about the job."""
        (row,) = objects(self._call("queue"))
        return job_info(row)

    def state(self) -> State:
        return self.info().state

    def wait(self, timeout: Optional[float] = None) -> JobInfo:
        """Waits for the end of the job. Raises `JobFailed` if it has not succeeded, and `TimeoutError` after so many seconds.

        The job goes on after a `TimeoutError` or an interrupt (Ctrl-C): `cancel` ends it.
        """
        try:
            with started(command("wait", [str(self.id)], self.machine)) as process:
                stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"job {self.id} has not ended within {timeout} s, and goes on") from None
        except KeyboardInterrupt:
            raise self._goes_on() from None
        rows = objects(stdout)
        if len(rows) != 1:
            raise failed(process.returncode, stderr)
        return checked(job_info(rows[0]), process.returncode)

    def future(self) -> "Future[JobInfo]":
        """Returns a future with what `wait` returns or raises. `asyncio.wrap_future` makes it awaitable.

        One thread serves the futures of all jobs of a machine. A future stands for the wait, not for the job: to cancel it only
        ends the wait.
        """
        from ._future import future

        return future(self)

    def output(self, index: Optional[int] = None, *, errors: bool = False) -> str:
        """Returns what the job has printed until now. `index` is a task of an array; without it, the tasks follow each other.

        `errors` returns standard error instead, if it has a file of its own (`errors_to`).
        """
        words = ["--errors"] if errors else []
        try:
            return decoded(call("output", [*words, self._task(index)], self.machine))
        except Failed as error:
            # A job that has printed nothing has no file.
            if error.id == "machine/no-output" and self.info().output is not None and not errors:
                return error.stdout
            raise

    def follow(self, index: Optional[int] = None) -> Iterator[str]:
        """Yields the lines that the job prints, without their line feeds, until it is over."""
        try:
            with started(command("output", ["--follow", self._task(index)], self.machine)) as process:
                assert process.stdout is not None and process.stderr is not None
                for line in process.stdout:
                    yield decoded(line[:-1] if line.endswith(b"\n") else line)
                # It has ended: the pipe is closed.
                stderr = process.stderr.read()
        except KeyboardInterrupt:
            raise self._goes_on() from None
        if process.returncode != 0:
            raise failed(process.returncode, stderr)

    def cancel(self, indexes: Union[str, Iterable[int], None] = None) -> None:
        """Ends the job, or these tasks of an array."""
        name = str(self.id) if indexes is None else f"{self.id}[{index_list(indexes)}]"
        call("cancel", [name], self.machine)

    def hold(self) -> None:
        """Keeps the job from starting, until `release`."""
        self._call("hold")

    def release(self) -> None:
        self._call("release")

    def _goes_on(self) -> KeyboardInterrupt:
        return KeyboardInterrupt(f"job {self.id} goes on: `rally cancel {self.id}` ends it")

    def _task(self, index: Optional[int]) -> str:
        return str(self.id) if index is None else f"{self.id}[{index}]"


After = Union[Job, int, str]
"""A job for whose success to wait; as `str` also ``any:12`` (its end) and ``start:12``."""


def submit(
    program: Argument,
    *args: Argument,
    n: Optional[int] = None,
    time: Optional[Duration] = None,
    name: Optional[Argument] = None,
    after: Union[After, Iterable[After]] = (),
    array: Union[str, Iterable[int], None] = None,
    max_running: Optional[int] = None,
    hold: bool = False,
    requeue: bool = False,
    priority: Optional[int] = None,
    exclusive: bool = False,
    output_to: Optional[PathName] = None,
    errors_to: Optional[PathName] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[PathName] = None,
    machine: Union[str, Machine, None] = None,
    options: Sequence[Argument] = (),
) -> Job:
    """Puts a job into the queue of a machine, and returns when it is stored there. Nothing but the disk loses it then.

    The arguments are the options of ``rally submit``: `time` is a limit in seconds, `array` the indexes of the tasks (``"1-100"``,
    ``range(100)``), `output_to` a file for the output (``rally-%j.out``). `machine` is the only one that runs, if left out. `env` are
    variables in addition to those that the ranks inherit. Relative names start at `cwd`.
    """
    words: List[Argument] = []
    for option, value in (
        ("-n", None if n is None else str(n)),
        ("--time", None if time is None else duration(time)),
        ("--job-name", name),
        ("--array", None if array is None else index_list(array)),
        ("--max-running", None if max_running is None else str(max_running)),
        ("--priority", None if priority is None else str(priority)),
        ("--output-to", output_to),
        ("--errors-to", errors_to),
    ):
        if value is not None:
            words += [option, value]
    for other in [after] if isinstance(after, (Job, int, str)) else after:
        words += ["--after", str(other.id if isinstance(other, Job) else other)]
    for flag, is_set in (("--hold", hold), ("--requeue", requeue), ("--exclusive", exclusive)):
        if is_set:
            words.append(flag)
    settings, environment = variables(env)
    words += [*settings, *options, *program_words(program, args)]
    (row,) = objects(call("submit", ["--to=machine", *words], machine_name(machine), cwd, environment))
    return Job(row["job"], row["machine"])


def index_list(indexes: Union[str, Iterable[int]]) -> str:
    """Returns indexes as the launcher reads them: ``1-3,7``."""
    if isinstance(indexes, str):
        return indexes
    runs: List[List[int]] = []
    for index in sorted(set(indexes)):
        if index < 0:
            raise ValueError(f"the index {index} of a task is negative")
        if runs and index == runs[-1][1] + 1:
            runs[-1][1] = index
        else:
            runs.append([index, index])
    if not runs:
        raise ValueError("an array without tasks")
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def checked(info: JobInfo, returncode: int) -> JobInfo:
    if info.state != "succeeded":
        raise JobFailed(returncode, info)
    return info
