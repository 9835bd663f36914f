/* In a communicator with the ranks in reverse order, each of two ranks names the other one as the root. */
#include "begin.h"

int main(void) {
    int word = 0;
    MPI_Comm turned;
    begin();
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned);
    MPI_Bcast(&word, 1, MPI_INT, rank, turned);
    MPI_Finalize();
    return 0;
}
