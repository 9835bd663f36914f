/* Rank 0 sends a message with a different tag from the one that rank 1 waits for. */
#include "begin.h"

int main(void) {
    int word = 0;
    begin();
    if (rank == 0)
        MPI_Ssend(&word, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(&word, 1, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
