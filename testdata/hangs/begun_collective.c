/* Three ranks wait for a nonblocking collective to complete; the fourth rank is in a different collective. */
#include "begin.h"

int main(void) {
    int one = 1, sum;
    MPI_Request request;
    begin();
    if (rank == 3)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
