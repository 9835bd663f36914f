"""Python threads, each in calls of a different kind."""

import select
import threading
import time


class Solver:
    def __init__(self):
        self.lock = threading.Lock()
        self.lock.acquire()

    def exchange(self):
        with self.lock:
            pass

    def steps(self, count):
        for step in range(count):
            yield step
            time.sleep(3600)


def run(solver):
    return [step for step in solver.steps(2)]


def recurse(depth, ending):
    if depth:
        return recurse(depth - 1, ending)
    return ending()


def listen():
    select.select([], [], [], 3600)


def compute():
    return sorted([2, 1], key=lambda number: time.sleep(3600))


def main():
    solver = Solver()
    waiting = threading.Event()
    for target in (
        solver.exchange,
        lambda: run(solver),
        lambda: recurse(20, listen),
        compute,
        lambda: waiting.wait(),
    ):
        threading.Thread(target=target, daemon=True).start()
    print("ready", flush=True)
    recurse(3, lambda: time.sleep(3600))


main()
