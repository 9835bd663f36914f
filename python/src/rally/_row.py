"""A job as listings show it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any, Literal, Mapping, Optional, Tuple

State = Literal["waiting", "held", "running", "paused", "succeeded", "failed", "canceled"]


@dataclass(frozen=True)
class TaskCounts:
    """The tasks of an array."""

    waiting: int
    running: int
    succeeded: int
    failed: int
    canceled: int
    failed_indexes: str = ""
    """Such as ``3,7-9``."""


@dataclass(frozen=True)
class JobInfo:
    """A job of a machine, at one moment."""

    job: int
    name: str
    command: str
    state: State
    slots: int
    priority: int
    submitted: datetime
    started: Optional[datetime] = None
    ended: Optional[datetime] = None
    elapsed: Optional[timedelta] = None
    limit: Optional[timedelta] = None
    hosts: Tuple[str, ...] = ()
    tasks: Optional[TaskCounts] = None
    """Only for arrays."""
    output: Optional[str] = None
    """The file with the output; of an array with ``%j`` and ``%i``. `None` for jobs of ``rally run``."""
    reason: Optional[str] = None
    """Why the job has not succeeded."""

    @property
    def is_over(self) -> bool:
        return self.state in ("succeeded", "failed", "canceled")


def _time(row: Mapping[str, Any], key: str) -> Optional[datetime]:
    millis = row.get(key)
    return None if millis is None else datetime.fromtimestamp(millis / 1000, timezone.utc)


def _duration(row: Mapping[str, Any], key: str) -> Optional[timedelta]:
    seconds = row.get(key)
    return None if seconds is None else timedelta(seconds=seconds)


def job_info(row: Mapping[str, Any]) -> JobInfo:
    """Reads a row of ``rally queue``. Fields of later versions are left out."""
    tasks = row.get("tasks")
    counts = None
    if tasks is not None:
        counts = TaskCounts(**{name: tasks[name] for name in TaskCounts.__dataclass_fields__ if name in tasks})
    submitted = _time(row, "submitted")
    assert submitted is not None
    return JobInfo(
        job=row["job"],
        name=row["name"],
        command=row["command"],
        state=row["state"],
        slots=row["slots"],
        priority=row["priority"],
        submitted=submitted,
        started=_time(row, "started"),
        ended=_time(row, "ended"),
        elapsed=_duration(row, "elapsed_seconds"),
        limit=_duration(row, "limit_seconds"),
        hosts=tuple(row.get("hosts", ())),
        tasks=counts,
        output=row.get("output"),
        reason=row.get("reason"),
    )

