/* Every rank waits in a synchronous send until its message is received. */
#include "begin.h"

int main(void) {
    int word = 0;
    begin();
    MPI_Ssend(&word, 1, MPI_INT, (rank + 1) % ranks, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
