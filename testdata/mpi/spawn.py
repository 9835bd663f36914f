# Spawns Python from Python: a single child with MPI_Comm_spawn, then a pool of workers.
import sys

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor


def square(number):
    return number * number


def main():
    child = "from mpi4py import MPI; p = MPI.Comm.Get_parent(); p.send(6 * p.recv(), 0); p.Disconnect()"
    children = MPI.COMM_SELF.Spawn(sys.executable, ["-c", child], 1)
    children.send(7, 0)
    assert children.recv() == 42
    children.Disconnect()
    print("the child answered")
    with MPIPoolExecutor(2) as pool:
        assert list(pool.map(square, range(20))) == [square(number) for number in range(20)]
    print("the pool worked")


if __name__ == "__main__":
    main()
