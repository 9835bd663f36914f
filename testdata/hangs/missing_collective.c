/* Rank 3 skips a collective and waits for a message that rank 0 sends after that collective. */
#include "begin.h"

int main(void) {
    int word = 0, sum = 0;
    begin();
    if (rank != 3)
        MPI_Allreduce(&word, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        MPI_Send(&sum, 1, MPI_INT, 3, 0, MPI_COMM_WORLD);
    if (rank == 3)
        MPI_Recv(&sum, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
