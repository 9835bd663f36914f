/* Rank 3 creates communicators in a different order from the other ranks. */
#include "begin.h"

int main(void) {
    MPI_Comm one, other;
    begin();
    if (rank == 3)
        MPI_Comm_dup(MPI_COMM_WORLD, &one);
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &other);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
