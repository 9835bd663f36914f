"""A machine: nodes with a queue that stay, until they are told to end."""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from ._call import Argument, Failed, call, objects
from ._row import JobInfo, job_info

if TYPE_CHECKING:
    from ._job import Job

_MAIN = "main"
_NOT_RUNNING = ("machine/none-runs", "machine/does-not-run")


@dataclass(frozen=True)
class MachineStatus:
    """What a machine is and does."""

    machine: str
    directory: str
    """Where its queue and its history are."""
    up_seconds: int
    nodes: int
    usable: int
    """The nodes on which jobs can start."""
    slots: int
    free: int
    """Slots without a job."""
    waiting: int
    running: int
    ending: bool
    trouble: Optional[str] = None
    """Why the queue cannot be stored, such as a full disk."""


@dataclass(frozen=True)
class Node:
    """A node of a machine."""

    node: str
    state: str
    """``up``, ``starting``, ``drained`` or ``bad``."""
    slots: int
    free: int
    jobs: Tuple[int, ...] = ()
    reason: Optional[str] = None
    """Why the node is bad."""


class Machine:
    """A machine, whether it runs or not.

    As a context manager, it is started if it does not run, and is ended in that case only, with the jobs that run on it. Jobs that
    wait stay in its queue, for the next start.
    """

    def __init__(self, name: Optional[str] = None) -> None:
        self.name = name
        self._is_ours = False

    def __repr__(self) -> str:
        return f"rally.machine({self.name!r})"

    def up(self, hosts: Union[str, Sequence[str], None] = None, options: Sequence[Argument] = (), *, default: bool = False) -> "Machine":
        """Starts the machine, and returns when its nodes have joined.

        `hosts` are the nodes, such as ``["n1:8", "n2:8"]``: this computer if left out. `options` are further options of ``rally
        up``. With `default`, `run` uses the machine without being told.
        """
        name = self.name or os.environ.get("RALLY_MACHINE") or _MAIN
        words: List[Argument] = ["--name", name]
        if hosts is not None:
            words += ["--host", hosts if isinstance(hosts, str) else ",".join(hosts)]
        if default:
            words.append("--default")
        call("up", [*words, *options])
        self.name = name
        self._is_ours = True
        return self

    def down(self, *, now: bool = False, wait: bool = False) -> None:
        """Ends the machine. If jobs run: `now` ends them, `wait` waits for them, and without either the machine goes on (`Failed`)."""
        words = ["--now"] if now else ["--wait"] if wait else []
        call("down", words, self.name)
        self._is_ours = False

    def is_running(self) -> bool:
        try:
            self.status()
        except Failed as error:
            if error.id in _NOT_RUNNING:
                return False
            raise
        return True

    def status(self) -> MachineStatus:
        (row,) = objects(call("status", machine=self.name))
        return MachineStatus(**_known(MachineStatus, row))

    def nodes(self) -> List[Node]:
        rows = objects(call("nodes", machine=self.name))
        return [Node(**{**_known(Node, row), "jobs": tuple(row["jobs"])}) for row in rows]

    def queue(self, over: int = 0) -> List[JobInfo]:
        """Lists the jobs that wait and run, and the last ones that are over."""
        # Jobs of Slurm have other rows, and belong to no machine.
        words = ["--to=machine"]
        if over > 0:
            words.append(f"--over={over}")
        return [job_info(row) for row in objects(call("queue", words, self.name))]

    def job(self, number: int) -> "Job":
        """Returns a job by its number, such as one that another program has submitted."""
        from ._job import Job

        return Job(number, self.name)

    def __enter__(self) -> "Machine":
        if not self._is_ours and not self.is_running():
            self.up()
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        value: Optional[BaseException],
        traceback: Optional[TracebackType],
    ) -> None:
        if self._is_ours:
            self.down(now=True)


def _known(kind: Type[Any], row: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the fields of a row that this version knows."""
    return {name: row[name] for name in kind.__dataclass_fields__ if name in row}


def machine(name: Optional[str] = None) -> Machine:
    """Returns a machine by its name; without one, the only one that runs here, or a new one called ``main``."""
    return Machine(name)


def machine_name(machine: Union[str, Machine, None]) -> Optional[str]:
    return machine.name if isinstance(machine, Machine) else machine
