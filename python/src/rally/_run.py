"""`run`: a job for which the caller waits."""

from __future__ import annotations

import base64
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import timedelta
from typing import IO, Any, Dict, List, Mapping, Optional, Sequence, TextIO, Tuple, Union, cast

from ._binary import find_binary
from ._call import Argument, Failed, Message, PathName, decoded, message_of, object_of, program_words, started, variables
from ._machine import Machine, machine_name

_READ_MAX = 1 << 16

Duration = Union[float, timedelta]


class TimedOut(Failed, TimeoutError):
    """The job was ended because it had reached its time limit."""


@dataclass(frozen=True)
class Completed:
    """A job that has ended."""

    returncode: int
    """That of the first rank that failed; 128 + n if signal n ended it."""
    stdout: str = ""
    """What the ranks have printed; empty unless captured."""
    stderr: str = ""
    messages: Tuple[Message, ...] = ()
    """Notes and warnings of the launcher, and why the job failed."""


def duration(time: Duration) -> bytes:
    seconds = time.total_seconds() if isinstance(time, timedelta) else time
    if seconds <= 0:
        raise ValueError(f"a time limit of {seconds} s")
    return f"{seconds:.3f}".encode()


def run(
    program: Argument,
    *args: Argument,
    n: Optional[int] = None,
    machine: Union[str, Machine, None] = None,
    capture: bool = False,
    check: bool = True,
    timeout: Optional[Duration] = None,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[PathName] = None,
    input: Union[str, bytes, None] = None,
    options: Sequence[Argument] = (),
) -> Completed:
    """Runs a program in parallel, and waits for its end.

    `n` is the number of ranks: one for each slot if it is left out. `machine` is a machine that runs the job (``rally up``);
    without it, ``rally run`` decides as on the command line. `env` are variables in addition to those that the ranks inherit.
    `input` is the standard input of rank 0, which is empty otherwise. `options` are further options of ``rally run``.

    What the ranks print goes to `sys.stdout` and `sys.stderr`, in a notebook to the cell. With `capture` it is in the result. Bytes
    that are not UTF-8 are surrogates there.

    Raises `Failed` if the job has not succeeded; `check=False` returns its code instead. Raises `TimedOut` when `timeout` is over.
    An interrupt (Ctrl-C) is passed to the ranks; the second one kills them.
    """
    words: List[bytes] = [os.fsencode(find_binary()), b"run", b"--json"]
    if n is not None:
        words += [b"-n", str(n).encode()]
    name = machine_name(machine)
    if name is not None:
        words += [b"--on-machine", os.fsencode(name)]
    if timeout is not None:
        words += [b"--timeout", duration(timeout)]
    settings, environment = variables(env)
    words += settings
    words += [os.fsencode(word) for word in options]
    words += program_words(program, args)
    with tempfile.TemporaryFile() as file:
        if input is not None:
            file.write(input if isinstance(input, bytes) else input.encode("utf-8", "surrogateescape"))
            file.seek(0)
        with started(words, subprocess.DEVNULL if input is None else file, cwd, environment) as process:
            reader = _Reader(process, capture)
            reader.read_all()
    return reader.completed(check)


class _Reader:
    """Reads the output of a front, which is one JSON object in each line: a line of a rank, or a message."""

    def __init__(self, process: "subprocess.Popen[bytes]", capture: bool) -> None:
        self.process = process
        self.capture = capture
        self.messages: List[Message] = []
        self.text: Dict[str, List[bytes]] = {"stdout": [], "stderr": []}
        # The starts of lines, by stream.
        self.starts: Dict[str, bytes] = {"stdout": b"", "stderr": b""}

    def read_all(self) -> None:
        """Reads until the front has ended. An interrupt is passed on, and raised again at the end."""
        interrupted: Optional[KeyboardInterrupt] = None
        while True:
            try:
                self._read()
                self.process.wait()
                break
            except KeyboardInterrupt as error:
                interrupted = error
                # The terminal sends the signal to all processes in its foreground.
                if not _is_foreground():
                    self.process.send_signal(signal.SIGINT)
            except BaseException:
                # Nobody reads its output any more, so that the front ends in any case.
                self.process.terminate()
                for pipe in (self.process.stdout, self.process.stderr):
                    if pipe is not None:
                        pipe.close()
                self.process.wait()
                raise
        if interrupted is not None:
            raise KeyboardInterrupt("the job was interrupted")

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for name in ("stdout", "stderr"):
                pipe = getattr(self.process, name)
                if not pipe.closed:
                    selector.register(pipe, selectors.EVENT_READ, name)
            while selector.get_map():
                for key, _ in selector.select():
                    data = os.read(key.fd, _READ_MAX)
                    if data:
                        self._add(key.data, data)
                    else:
                        selector.unregister(key.fileobj)
                        cast(IO[bytes], key.fileobj).close()
                        if self.starts[key.data]:
                            self._add(key.data, b"\n")

    def _add(self, name: str, data: bytes) -> None:
        *lines, self.starts[name] = (self.starts[name] + data).split(b"\n")
        for line in lines:
            value = object_of(line)
            message = None if value is None else message_of(value)
            if message is not None:
                self.messages.append(message)
                if not self.capture and message.severity != "error":
                    _write(sys.stderr, f"{message}\n".encode("utf-8", "surrogateescape"))
            elif value is None or "stream" not in value:
                self._put(name, line + b"\n")
            else:
                self._put(str(value["stream"]), _content(value))

    def _put(self, name: str, data: bytes) -> None:
        if self.capture:
            self.text[name].append(data)
        else:
            _write(sys.stdout if name == "stdout" else sys.stderr, data)

    def completed(self, check: bool) -> Completed:
        code = self.process.returncode
        out, err = (decoded(b"".join(self.text[name])) for name in ("stdout", "stderr"))
        # A launcher that was killed, as shells say it.
        code = 128 - code if code < 0 else code
        if any(message.id == "job/time-limit" for message in self.messages):
            raise TimedOut(code, self.messages, out, err)
        if check and code != 0:
            raise Failed(code, self.messages, out, err)
        return Completed(code, out, err, tuple(self.messages))


def _content(value: Mapping[str, Any]) -> bytes:
    """Returns the bytes of a line of a rank."""
    text = value.get("text")
    data = base64.b64decode(value.get("base64", "")) if text is None else str(text).encode("utf-8", "surrogateescape")
    return data if value.get("partial") else data + b"\n"


def _write(stream: Optional[TextIO], data: bytes) -> None:
    """Writes bytes to a text stream: as they are if it has bytes below, as those of notebooks do not."""
    if stream is None:
        return
    below = getattr(stream, "buffer", None)
    if below is None:
        stream.write(data.decode("utf-8", "replace"))
    else:
        stream.flush()
        below.write(data)
    stream.flush()


def _is_foreground() -> bool:
    """Returns whether Ctrl-C in our terminal is sent to us and to our children."""
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)

