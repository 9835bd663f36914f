/* Rank 3 waits for a message instead of calling the fence that ends the epoch. */
#include "begin.h"

int main(void) {
    int word = 0;
    MPI_Win window;
    begin();
    MPI_Win_create(&word, sizeof word, sizeof word, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    if (rank == 3)
        MPI_Recv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_fence(0, window);
    MPI_Finalize();
    return 0;
}
