/* Calls that tools like to wrap, and then rank 0 receives one message more than rank 1 sends. With OWN, the program wraps some itself. */
#include <mpi.h>
#include <stdio.h>

#ifdef OWN
int MPI_Allreduce(const void *from, void *to, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    return PMPI_Allreduce(from, to, count, type, op, comm);
}

int MPI_Send(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return PMPI_Send(buffer, count, type, to, tag, comm);
}
#endif

int main(int argc, char **argv) {
    int rank, word = 0, sum = 0;
    MPI_Comm twin;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    for (int i = 0; i < 3; i++) {
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, twin);
        MPI_Irecv(&word, 1, MPI_INT, 1 - rank, 4, twin, &request);
        MPI_Send(&rank, 1, MPI_INT, 1 - rank, 4, twin);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    printf("ready %d\n", sum);
    fflush(stdout);
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_INT, 1, 4, twin, MPI_STATUS_IGNORE);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
