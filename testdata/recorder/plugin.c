/* Each rank waits for a message that the other one never sends. Open MPI 4 has no MPI_Isendrecv. */
#include <mpi.h>
#include <stdio.h>

void work(void) {
    int rank, word = 0, other = 0;
    MPI_Request request;
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Isendrecv(&rank, 1, MPI_INT, 1 - rank, 3, &word, 1, MPI_INT, 1 - rank, 3, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Send(&word, 1, MPI_INT, 1 - rank, 4, MPI_COMM_WORLD);
    MPI_Recv(&word, 1, MPI_INT, 1 - rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    printf("ready %d\n", word);
    fflush(stdout);
    MPI_Recv(&other, 1, MPI_INT, 1 - rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
}
