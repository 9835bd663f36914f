# Exchanges objects and arrays between all ranks, with mpi4py.
from array import array

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
names = world.allgather({"rank": rank})
assert names == [{"rank": other} for other in range(size)], names
numbers = array("i", [rank] * 1000)
sums = array("i", [0] * 1000)
world.Allreduce(numbers, sums)
assert set(sums) == {size * (size - 1) // 2}, sums
world.Barrier()
print(f"hello from {rank} of {size} in Python")
