# A rank that sleeps several calls deep, after MPI_Init.
import os
import time

from mpi4py import MPI


def solve(depth):
    if depth:
        solve(depth - 1)
    else:
        os.write(1, b"ready\n")
        time.sleep(1000)


solve(10)
