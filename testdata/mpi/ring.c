/* A token passes around the ring a hundred times; every rank adds one. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    int rank, size, token = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int round = 0; round < 100; round++) {
        int before = (rank + size - 1) % size, after = (rank + 1) % size;
        if (rank > 0)
            MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        token++;
        MPI_Send(&token, 1, MPI_INT, after, 0, MPI_COMM_WORLD);
        if (rank == 0)
            MPI_Recv(&token, 1, MPI_INT, before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0)
        printf("the token came back as %d\n", token);
    MPI_Finalize();
    return 0;
}
