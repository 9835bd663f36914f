/* Two duplicates of a communicator: rank 0 uses one first, the other ranks the other. */
#include "begin.h"

int main(void) {
    MPI_Comm one, other;
    begin();
    MPI_Comm_dup(MPI_COMM_WORLD, &one);
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Barrier(rank == 0 ? one : other);
    MPI_Barrier(rank == 0 ? other : one);
    MPI_Finalize();
    return 0;
}
