/* Neighbors exchange words, and one of them uses another tag. */
#include "begin.h"

int main(void) {
    int out = 0, in = 0;
    begin();
    int tag = rank == 2 ? 6 : 5;
    int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Sendrecv(&out, 1, MPI_INT, right, tag, &in, 1, MPI_INT, left, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
