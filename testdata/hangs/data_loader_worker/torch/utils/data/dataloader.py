"""A loader with a process as its worker, with the names that PyTorch's has."""

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
        # Somebody has the lock at this moment: in the copy of the process nobody will let go of it.
        with lock:
            fork.Process(target=load, args=(self.data,), daemon=True).start()

    def _try_get_data(self):
        return self.data.get()
