"""Starts parallel programs and queues them on machines, by the launcher ``rally``.

>>> import rally
>>> rally.run("echo", "hi", n=2, capture=True).stdout
'hi\\nhi\\n'

`run` waits for a job, as `subprocess.run` does. `submit` puts one into the queue of a machine (`rally up`) and returns a `Job`.
"""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError as _NotInstalled
from importlib.metadata import version as _version

from ._binary import NoBinary, find_binary
from ._call import Argument, Failed, Message
from ._job import After, Job, JobFailed, submit
from ._machine import Machine, MachineStatus, Node, machine
from ._row import JobInfo, State, TaskCounts
from ._run import Completed, TimedOut, run

try:
    __version__ = _version("rallypoint")
except _NotInstalled:
    __version__ = "0"

__all__ = [
    "After",
    "Argument",
    "Completed",
    "Failed",
    "Job",
    "JobFailed",
    "JobInfo",
    "Machine",
    "MachineStatus",
    "Message",
    "NoBinary",
    "Node",
    "State",
    "TaskCounts",
    "TimedOut",
    "__version__",
    "find_binary",
    "machine",
    "run",
    "submit",
]
