# A rank that sleeps some calls deep, after MPI_Init.
import time

from mpi4py import MPI


def solve(depth):
    if depth:
        solve(depth - 1)
    else:
        print("ready", flush=True)
        time.sleep(1000)


solve(10)
