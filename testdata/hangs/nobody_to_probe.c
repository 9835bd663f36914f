/* All ranks probe for a message that no rank has sent. */
#include "begin.h"

int main(void) {
    MPI_Status status;
    begin();
    MPI_Probe(MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &status);
    MPI_Finalize();
    return 0;
}
