/* Rank 3 waits for a message while the other ranks are in MPI_Finalize. */
#include "begin.h"

int main(void) {
    int word = 0;
    begin();
    if (rank == 3)
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
