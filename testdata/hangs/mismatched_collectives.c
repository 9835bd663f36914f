/* Rank 3 calls a different collective from the other ranks. */
#include "begin.h"

int main(void) {
    int word = 0;
    begin();
    if (rank == 3)
        MPI_Bcast(&word, 1, MPI_INT, 0, MPI_COMM_WORLD);
    else
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
