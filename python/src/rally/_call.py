"""How the launcher is called, and what it says when something is wrong.

Every command is given ``--message-format=json``, whose form is stable. Nothing here needs a terminal or reads standard input.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import IO, Any, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ._binary import find_binary

Argument = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]
"""A word of a command line. Bytes that are not UTF-8 are surrogates in a `str`, as in `os.fsdecode`."""

PathName = Argument

JSON = b"--message-format=json"


def decoded(data: bytes) -> str:
    """Decodes what may be any bytes; ``text.encode("utf-8", "surrogateescape")`` returns them."""
    return data.decode("utf-8", "surrogateescape")


@dataclass(frozen=True)
class Message:
    """Something that the launcher says. ``rally help ID`` explains it at length."""

    id: str
    severity: str
    """``error``, ``warning`` or ``note``."""
    headline: str
    facts: Mapping[str, str] = field(default_factory=dict)
    help: Optional[str] = None

    def __str__(self) -> str:
        facts = dict(self.facts)
        if self.help is not None:
            facts["help"] = self.help
        width = max(map(len, facts), default=0) + 1
        lines = [f"  {name + ':':<{width}} {fact}" for name, fact in facts.items()]
        return "\n".join([f"{self.severity}: {self.headline}", *lines])


class Failed(Exception):
    """A command of the launcher, or a job, has not succeeded."""

    def __init__(self, returncode: int, messages: Sequence[Message], stdout: str = "", stderr: str = "") -> None:
        super().__init__(returncode, messages, stdout, stderr)
        self.returncode = returncode
        self.messages: Tuple[Message, ...] = tuple(messages)
        self.stdout = stdout
        self.stderr = stderr

    @property
    def message(self) -> Message:
        """The message that says what was wrong: the first error."""
        for message in self.messages:
            if message.severity == "error":
                return message
        return Message("", "error", f"rally ended with code {self.returncode}")

    @property
    def id(self) -> str:
        """The stable name of the message, such as ``job/rank-failed``; empty if there was none."""
        return self.message.id

    @property
    def headline(self) -> str:
        return self.message.headline

    @property
    def facts(self) -> Mapping[str, str]:
        return self.message.facts

    @property
    def help(self) -> Optional[str]:
        return self.message.help

    def __str__(self) -> str:
        return str(self.message).partition(": ")[2]


def message_of(value: Mapping[str, Any]) -> Optional[Message]:
    """Returns the message in a JSON object; `None` if it is something else."""
    if value.get("type") != "message":
        return None
    facts = {str(name): str(fact) for name, fact in value.get("facts", {}).items()}
    return Message(str(value["id"]), str(value["severity"]), str(value["headline"]), facts, value.get("help"))


def object_of(line: bytes) -> Optional[Dict[str, Any]]:
    """Returns the JSON object in a line; `None` if it is something else, such as the last words of a crash."""
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def objects(data: bytes) -> List[Dict[str, Any]]:
    return [value for value in map(object_of, data.splitlines()) if value is not None]


def failed(returncode: int, stderr: bytes, stdout: str = "") -> Failed:
    """Returns the exception for a command that has ended with this code and these messages."""
    messages: List[Message] = []
    rest: List[bytes] = []
    for line in stderr.splitlines():
        value = object_of(line)
        message = None if value is None else message_of(value)
        if message is None:
            rest.append(line)
        else:
            messages.append(message)
    return Failed(returncode, messages, stdout, decoded(b"\n".join(rest)))


def command(verb: str, words: Iterable[Argument], machine: Optional[str]) -> List[bytes]:
    """Returns the command line of a command about a machine."""
    line = [os.fsencode(find_binary()), verb.encode(), JSON]
    if machine is not None:
        line += [b"--on-machine", os.fsencode(machine)]
    return line + [os.fsencode(word) for word in words]


def call(
    verb: str,
    words: Iterable[Argument] = (),
    machine: Optional[str] = None,
    cwd: Optional[PathName] = None,
    env: Optional[Mapping[str, str]] = None,
) -> bytes:
    """Carries out a command, and returns what it prints."""
    done = subprocess.run(
        command(verb, words, machine),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=cwd,
        env=env,
    )
    if done.returncode != 0:
        raise failed(done.returncode, done.stderr, decoded(done.stdout))
    return done.stdout


@contextmanager
def started(
    line: List[bytes],
    stdin: Union[int, IO[bytes]] = subprocess.DEVNULL,
    cwd: Optional[PathName] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Starts a process with pipes for its output. It does not outlive the block: an exception kills it.

    An interrupt waits until the process is known. `Popen` would forget a process if it were interrupted.
    """
    interrupts: List[Optional[FrameType]] = []
    handler = signal.getsignal(signal.SIGINT)
    is_deferred = callable(handler) and threading.current_thread() is threading.main_thread()
    if is_deferred:
        signal.signal(signal.SIGINT, lambda _, frame: interrupts.append(frame))
    process = None
    try:
        try:
            process = subprocess.Popen(line, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=env)
        finally:
            if is_deferred:
                signal.signal(signal.SIGINT, handler)
        if interrupts and callable(handler):
            handler(signal.SIGINT, interrupts[0])
        yield process
    except BaseException:
        if process is not None:
            process.kill()
        raise
    finally:
        if process is not None:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait()


def program_words(program: Argument, args: Sequence[Argument]) -> List[bytes]:
    """Returns the end of a command line: a program and its arguments."""
    words = [os.fsencode(word) for word in (program, *args)]
    if b":" in words:
        # There is no way to write it: see docs/decisions/0040-python.md.
        raise ValueError('":" cannot be an argument of a program: for rally it separates the programs of a job')
    return [b"--", *words]


def variables(env: Optional[Mapping[str, str]]) -> Tuple[List[bytes], Optional[Dict[str, str]]]:
    """Returns the options that set these variables for the ranks, and the environment of the launcher.

    Values are not on the command line, which all users of the computer can read, except those that the launcher itself would obey.
    """
    if not env:
        return [], None
    words: List[bytes] = []
    own = dict(os.environ)
    for name, value in env.items():
        if not name or "=" in name or "*" in name:
            raise ValueError(f"{name!r} cannot be the name of a variable")
        if name.startswith("RALLY_"):
            words += [b"--set-env", os.fsencode(f"{name}={value}")]
        else:
            words += [b"--set-env", os.fsencode(name)]
            own[name] = value
    return words, own
