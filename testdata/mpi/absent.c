/* Rank 1 exits with 0 and never initializes MPI; the other ranks would wait for it. */
#include "check.h"

int main(int argc, char **argv)
{
    if (strcmp(getenv("RALLY_RANK"), "1") == 0)
        return 0;
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
