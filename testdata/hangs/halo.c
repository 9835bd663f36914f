/* Rank 1 waits for messages that rank 0 never sends, in a function that ends with the wait: a tail call if optimized. */
#include "begin.h"

static int word;

static __attribute__((noinline)) void finish(MPI_Request *requests) {
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

int main(void) {
    MPI_Request requests[2];
    begin();
    MPI_Irecv(&word, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&word, 1, MPI_INT, 1 - rank, 2, MPI_COMM_WORLD, &requests[1]);
    if (rank == 1)
        finish(requests);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
