/* Rank 0 starts its persistent receive once more than rank 1 sends. */
#include "begin.h"

int main(void) {
    int word = 0;
    MPI_Request request;
    begin();
    if (rank == 0) {
        MPI_Recv_init(&word, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, &request);
        for (int i = 0; i < 3; i++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
    } else if (rank == 1) {
        for (int i = 0; i < 2; i++)
            MPI_Send(&word, 1, MPI_INT, 0, 4, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
