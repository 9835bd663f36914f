/* Prints more output than the buffer of a pipe or a terminal holds, then aborts the job. */
#include <mpi.h>
#include <stdio.h>

enum { LINES = 20000 };

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 1) {
        for (int line = 1; line <= LINES; line++)
            printf("line %d of %d\n", line, LINES);
        MPI_Abort(MPI_COMM_WORLD, 42);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
