/* Sends to a nonexistent rank: MPI reports the error and ends the job. */
#include "check.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Send(NULL, 0, MPI_INT, 99, 0, MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
