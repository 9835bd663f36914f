/* Rank 0 waits for three messages, but only two are sent. */
#include "begin.h"

int main(void) {
    int words[3], word = 0;
    MPI_Request requests[3];
    begin();
    if (rank == 0) {
        for (int i = 0; i < 3; i++)
            MPI_Irecv(&words[i], 1, MPI_INT, 1, 0, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    } else {
        for (int i = 0; i < 2; i++)
            MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
