/* Each rank receives from its neighbour before it sends. */
#include "begin.h"

__attribute__((noinline)) static void shift(int *word) {
    MPI_Recv(word, 1, MPI_INT, (rank + ranks - 1) % ranks, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(word, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
}

int main(void) {
    int word = 0;
    begin();
    shift(&word);
    MPI_Finalize();
    return 0;
}
