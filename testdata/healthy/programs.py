"""Healthy programs, selected by name: rank 3 sleeps, or waits for processes that compute."""
import multiprocessing
import os
import queue
import sys
import threading

from mpi4py import MPI

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../hangs/data_loader"))


def compute():
    while True:
        sum(range(1000))


def event():
    threading.Event().wait(60)


def entry_of_queue():
    queue.Queue().get(timeout=60)


def end_of_thread():
    thread = threading.Thread(target=compute, daemon=True)
    thread.start()
    thread.join()


def semaphore_of_process():
    done = multiprocessing.Semaphore(0)
    multiprocessing.Process(target=compute, daemon=True).start()
    done.acquire()


def pool():
    with multiprocessing.Pool(1) as workers:
        workers.apply(compute)


def data_loader():
    from torch.utils.data.dataloader import DataLoader

    loader = DataLoader()
    multiprocessing.Process(target=compute, daemon=True).start()
    loader._try_get_data()


world = MPI.COMM_WORLD
world.Barrier()
print("ready", flush=True)
if world.rank == 3:
    globals()[sys.argv[1]]()
world.Barrier()
