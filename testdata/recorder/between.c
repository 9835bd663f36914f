/* Odd and even ranks of four make an intercommunicator, talk over it, and merge it. Then, as the argument says:
   healthy: they go on and on; between: they wait for each other over the intercommunicator; merged: over what it was merged to. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int rank, word = 0, is_odd, half;
    MPI_Comm own, between, merged;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    is_odd = rank % 2;
    half = rank / 2;
    MPI_Comm_split(MPI_COMM_WORLD, is_odd, rank, &own);
    MPI_Intercomm_create(own, 0, MPI_COMM_WORLD, 1 - is_odd, 11, &between);
    MPI_Sendrecv(&rank, 1, MPI_INT, half, 2, &word, 1, MPI_INT, half, 2, between, MPI_STATUS_IGNORE);
    MPI_Barrier(between);
    MPI_Intercomm_merge(between, is_odd, &merged);
    MPI_Barrier(merged);
    printf("ready %d\n", word);
    fflush(stdout);
    while (!strcmp(argv[1], "healthy")) {
        MPI_Bcast(&word, 1, MPI_INT, is_odd ? 0 : half ? MPI_PROC_NULL : MPI_ROOT, between);
        MPI_Sendrecv(&rank, 1, MPI_INT, half, 2, &word, 1, MPI_INT, half, 2, between, MPI_STATUS_IGNORE);
    }
    if (rank == 3)
        MPI_Recv(&word, 1, MPI_INT, 1, 7, strcmp(argv[1], "merged") ? between : merged, MPI_STATUS_IGNORE);
    MPI_Barrier(strcmp(argv[1], "merged") ? between : merged);
    MPI_Finalize();
    return 0;
}
