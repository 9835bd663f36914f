/* Rank 3 waits for a request while the other ranks are in MPI_Finalize. */
#include "begin.h"

int main(void) {
    int word;
    MPI_Request request;
    begin();
    if (rank == 3) {
        MPI_Irecv(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
        MPI_Waitall(1, &request, MPI_STATUSES_IGNORE);
    }
    MPI_Finalize();
    return 0;
}
