"""Blocks in several threads, after printing where each of them is: what a reader of its memory should find.

Prints a line `thread IDENT NATIVE` for each, then its frames, innermost first, as `  NAME|FILE|LINE|GENERATOR`, and at the
end `ready`."""
import functools
import sys
import threading
import time

GATE = threading.Lock()
GATE.acquire()


def hold():
    GATE.acquire()


def deep(depth):
    if depth == 0:
        hold()
    else:
        deep(depth - 1)


def numbers():
    yield 1
    hold()
    yield 2


def chained():
    yield from numbers()


def generating():
    for number in chained():
        number += 1


class Größe:
    @property
    def länge_名前_𠮷(self):
        hold()

    def __lt__(self, other):
        hold()
        return True

    def __init__(self, wait):
        if wait:
            (lambda: hold())()


def through_c():
    sorted([Größe(False), Größe(False)])


def comprehending():
    return [[hold() for _ in "a"] for _ in "b"]


@functools.lru_cache(maxsize=None)
def cached():
    return functools.partial(max, [1], key=lambda value: hold())([2])


def defining():
    class Inner:
        exec("hold()")

    return Inner


def finally_(
    wait,
):
    try:
        raise ValueError
    except ValueError:
        with threading.Lock():
            wait(
                1,
            )


class Frozen:
    def __del__(self):
        hold()


def deleting():
    frozen = Frozen()
    del frozen


def sleeping():
    time.sleep(10_000)


WORK = {
    "deep": functools.partial(deep, 900),
    "generating": generating,
    "property": lambda: Größe(False).länge_名前_𠮷,
    "through_c": through_c,
    "comprehending": comprehending,
    "cached": cached,
    "defining": defining,
    "finally": functools.partial(finally_, lambda n: hold()),
    "deleting": deleting,
    "constructing": functools.partial(Größe, True),
    "sleeping": sleeping,
}


def chain(frame):
    while frame is not None:
        code = frame.f_code
        name = getattr(code, "co_qualname", code.co_name)
        yield "  %s|%s|%s" % (name, code.co_filename, frame.f_lineno)
        frame = frame.f_back


def tell():
    time.sleep(float(sys.argv[1]) if len(sys.argv) > 1 else 0.5)
    natives = {thread.ident: getattr(thread, "native_id", 0) for thread in threading.enumerate()}
    sys.stdout.reconfigure(encoding="utf-8")
    for ident, frame in sorted(sys._current_frames().items()):
        if ident != threading.get_ident():
            print("thread", ident, natives[ident])
            for line in chain(frame):
                print(line)
    print("ready", flush=True)
    time.sleep(10_000)


def main():
    sys.setrecursionlimit(1200)
    for name, work in WORK.items():
        if len(sys.argv) < 3 or name in sys.argv[2:]:
            threading.Thread(target=work, name=name, daemon=True).start()
    threading.Thread(target=tell, daemon=True).start()
    hold()


main()
