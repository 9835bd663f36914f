"""A data loader whose worker is a process, with PyTorch's names."""

import multiprocessing
import threading

lock = threading.Lock()


def load(data):
    with lock:
        data.put(0)


class DataLoader:
    def __init__(self):
        fork = multiprocessing.get_context("fork")
        self.data = fork.Queue()
        # The lock is held during the fork, so in the child it is never released.
        with lock:
            fork.Process(target=load, args=(self.data,), daemon=True).start()

    def _try_get_data(self):
        return self.data.get()
