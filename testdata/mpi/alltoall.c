/* Every rank sends 65,536 integers to every other one; each integer encodes its source and destination. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 65536 };

int main(int argc, char **argv)
{
    int rank, size, wrong = 0, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int *out = malloc(sizeof(int) * COUNT * size), *in = malloc(sizeof(int) * COUNT * size);
    for (int to = 0; to < size; to++)
        for (int i = 0; i < COUNT; i++)
            out[to * COUNT + i] = (rank * 1000 + to) ^ i;
    MPI_Alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++)
        for (int i = 0; i < COUNT; i++)
            wrong += in[from * COUNT + i] != ((from * 1000 + rank) ^ i);
    MPI_Allreduce(&wrong, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks exchanged %d integers each, %s\n", size, COUNT, all ? "ERRORS" : "no error");
    MPI_Finalize();
    return all != 0;
}
