"""Futures of jobs: one thread waits for all jobs of a machine.

The thread lists the jobs, fulfils the futures of those that are over, and then waits with ``rally wait`` for the one that is likely
to end next. ``rally wait`` waits for *all* jobs that it is given, so that another job may end first: the thread lists again after
a pause, which grows while nothing happens.
"""

from __future__ import annotations

import atexit
import os
import select
import subprocess
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Dict, List, Optional, Set, Tuple

from ._call import Failed, Message, call, command, failed, objects
from ._row import JobInfo, job_info

if TYPE_CHECKING:
    from ._job import Job

# Seconds between two lists of the jobs, if nothing happens.
_PAUSE_MIN = 0.02
_PAUSE_MAX = 1.0
_PAUSE_GROWTH = 1.5
# Jobs that are asked for by their numbers. Of more, the list of all jobs that wait and run is read.
_ASKED_MAX = 256
# Commands in a row that a signal may end: Ctrl-C in a terminal is sent to them too.
_KILLED_MAX = 5


def future(job: "Job") -> "Future[JobInfo]":
    with _lock:
        waiter = _waiters.get(job.machine)
        if waiter is None:
            waiter = _waiters[job.machine] = _Waiter(job.machine)
    return waiter.add(job.id)


class _Waiter:
    """The thread for the jobs of one machine. It ends when no future is left, and starts again."""

    def __init__(self, machine: Optional[str]) -> None:
        self.machine = machine
        self.lock = threading.Lock()
        self.futures: Dict[int, List["Future[JobInfo]"]] = {}
        self.thread: Optional[threading.Thread] = None
        self.wake_out, self.wake_in = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        # The running `rally wait`, and its job. At the end of Python no other one is started.
        self.process_lock = threading.Lock()
        self.is_ending = False
        self.process: Optional["subprocess.Popen[bytes]"] = None
        self.target: Optional[int] = None

    def add(self, number: int) -> "Future[JobInfo]":
        result: "Future[JobInfo]" = Future()
        with self.lock:
            self.futures.setdefault(number, []).append(result)
            if self.thread is None:
                self.thread = threading.Thread(target=self._serve, name=f"rally wait {self.machine or ''}", daemon=True)
                self.thread.start()
        self._wake()
        return result

    def _wake(self) -> None:
        try:
            os.write(self.wake_in, b"w")
        except BlockingIOError:
            # It is full, so that the thread will wake.
            pass

    def end(self) -> None:
        """Ends the `rally wait` at the end of Python."""
        with self.process_lock:
            self.is_ending = True
            if self.process is not None:
                self.process.kill()

    def _serve(self) -> None:
        pause, killed, has_ended = _PAUSE_MIN, 0, False
        while True:
            with self.lock:
                self._forget_cancelled()
                jobs = sorted(self.futures)
                if not jobs:
                    self._wait_for(None)
                    self.thread = None
                    return
            started = time.monotonic()
            try:
                is_new, next_job = self._look(jobs)
                killed = 0
            except Failed as error:
                if error.returncode < 0 and killed < _KILLED_MAX:
                    killed += 1
                    continue
                self._fail(jobs, error)
                continue
            except BaseException as error:
                # Such as no process left, or the end of Python. Futures never wait for a thread that has ended.
                self._fail(jobs, error)
                continue
            if is_new:
                pause = _PAUSE_MIN
            if next_job is None:
                continue
            if is_new:
                # At most half of the time for lists, even if jobs end all the time.
                self._sleep(time.monotonic() - started)
            elif has_ended:
                # `rally wait` was killed, or failed.
                self._sleep(pause)
            has_ended, is_woken = self._wait(next_job, None if len(jobs) == 1 else pause)
            pause = _PAUSE_MIN if is_woken else min(pause * _PAUSE_GROWTH, _PAUSE_MAX)

    def _forget_cancelled(self) -> None:
        for number in list(self.futures):
            left = [future for future in self.futures[number] if not future.cancelled()]
            if left:
                self.futures[number] = left
            else:
                del self.futures[number]

    def _look(self, jobs: List[int]) -> Tuple[bool, Optional[int]]:
        """Fulfils the futures of jobs that are over. Returns whether there are any, and the job that is likely to end next."""
        alive: Dict[int, str] = {}
        asked = jobs
        if len(jobs) > _ASKED_MAX:
            rows = objects(call("queue", ["--to=machine"], self.machine))
            alive = {row["job"]: row["state"] for row in rows}
            asked = [job for job in jobs if job not in alive][:_ASKED_MAX]
        over: Set[int] = set()
        for info in self._infos(asked):
            if info.is_over:
                over.add(info.job)
                self._finish(info)
            else:
                alive[info.job] = info.state
        for job in asked:
            if job not in over and job not in alive:
                unknown = Message("machine/no-job", "error", f"the machine knows no job {job}")
                self._settle(job, Failed(120, [unknown]))
        left = [job for job in jobs if job in alive]
        running = [job for job in left if alive[job] == "running"]
        return bool(over), next(iter(running or left), None)

    def _infos(self, jobs: List[int]) -> List[JobInfo]:
        if not jobs:
            return []
        line = command("queue", [str(job) for job in jobs], self.machine)
        done = subprocess.run(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        infos = [job_info(row) for row in objects(done.stdout)]
        if done.returncode != 0:
            error = failed(done.returncode, done.stderr)
            # The other jobs are listed nevertheless.
            if error.id != "machine/no-job":
                raise error
        return infos

    def _finish(self, info: JobInfo) -> None:
        from ._job import JobFailed

        if info.state == "succeeded":
            self._settle(info.job, info)
            return
        # Only the exit code of `rally wait` tells that of a job. The job is over: this does not wait.
        done = subprocess.run(
            command("wait", [str(info.job)], self.machine),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._settle(info.job, JobFailed(done.returncode, info))

    def _settle(self, number: int, result: object) -> None:
        with self.lock:
            futures = self.futures.pop(number, [])
        for future in futures:
            # False if it was cancelled.
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            elif isinstance(result, JobInfo):
                future.set_result(result)

    def _fail(self, jobs: List[int], error: BaseException) -> None:
        for job in jobs:
            self._settle(job, error)

    def _wait(self, job: int, seconds: Optional[float]) -> Tuple[bool, bool]:
        """Waits for the end of `rally wait`, a wake-up, or the end of the pause. Returns whether the first two have come."""
        self._wait_for(job)
        assert self.process is not None and self.process.stdout is not None
        ended = self.process.stdout.fileno()
        ready, _, _ = select.select([ended, self.wake_out], [], [], seconds)
        if self.wake_out in ready:
            self._drain()
        if ended in ready:
            self._wait_for(None)
        return ended in ready, self.wake_out in ready

    def _wait_for(self, job: Optional[int]) -> None:
        """Lets `rally wait` run for this job and for no other."""
        with self.process_lock:
            if self.is_ending:
                # Of this thread only.
                raise SystemExit
            if self.process is not None and self.target != job:
                self.process.kill()
                self.process.communicate()
                self.process = None
            if self.process is None and job is not None:
                self.process = subprocess.Popen(
                    command("wait", [str(job)], self.machine),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                )
            self.target = job

    def _sleep(self, seconds: float) -> None:
        """Sleeps until somebody wakes us, at most for these seconds."""
        ready, _, _ = select.select([self.wake_out], [], [], seconds)
        if ready:
            self._drain()

    def _drain(self) -> None:
        try:
            while len(os.read(self.wake_out, 4096)) == 4096:
                pass
        except BlockingIOError:
            pass


_lock = threading.Lock()
_waiters: Dict[Optional[str], _Waiter] = {}


def _end() -> None:
    for waiter in list(_waiters.values()):
        waiter.end()


atexit.register(_end)


def _forget() -> None:
    """Forgets, in a child of `os.fork`, the threads, which only the parent has."""
    global _lock
    _lock = threading.Lock()
    _waiters.clear()


os.register_at_fork(after_in_child=_forget)
