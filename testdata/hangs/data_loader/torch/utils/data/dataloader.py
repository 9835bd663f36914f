"""A data loader whose worker never delivers, with PyTorch's names."""

import queue
import threading


class DataLoader:
    def __init__(self):
        self.data = queue.Queue()
        self.orders = queue.Queue()
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        self.data.put(self.orders.get())

    def _try_get_data(self):
        return self.data.get()
