/* Another tag for each message: more than the recorder has room for. Then both ranks wait for each other. */
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
    int rank, word = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int tag = 0; tag < 5000; tag++)
        if (rank == 0)
            MPI_Send(&word, 1, MPI_INT, 1, tag, MPI_COMM_WORLD);
        else
            MPI_Recv(&word, 1, MPI_INT, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("ready %d\n", rank);
    fflush(stdout);
    MPI_Recv(&word, 1, MPI_INT, 1 - rank, 7000, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
