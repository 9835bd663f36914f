/* Rank 3 waits for a message while the other ranks create a Cartesian communicator over all ranks. */
#include "begin.h"

int main(void) {
    int size[2] = {2, 2}, wraps[2] = {0, 0}, word;
    MPI_Comm grid;
    begin();
    if (rank == 3)
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Cart_create(MPI_COMM_WORLD, 2, size, wraps, 0, &grid);
    MPI_Finalize();
    return 0;
}
