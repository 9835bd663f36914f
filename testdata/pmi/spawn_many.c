/* Spawns 4 children 100 times, or as many times as the argument says, one batch after another. */
#include <mpi.h>

#include "check.h"

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    int rank, size, sum = 0;
    int lots = argc > 1 ? atoi(argv[1]) : 100;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    if (parent != MPI_COMM_NULL) {
        CHECK(size == 4);
        MPI_Reduce(&rank, NULL, 1, MPI_INT, MPI_SUM, 0, parent);
        /* The children wait until their parent has met all of them. */
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    for (int lot = 0; lot < lots; lot++) {
        int errors[4] = {-1, -1, -1, -1};

        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 4, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, errors);
        for (int child = 0; child < 4; child++)
            CHECK(errors[child] == MPI_SUCCESS);
        MPI_Reduce(NULL, &sum, 1, MPI_INT, MPI_SUM, MPI_ROOT, children);
        CHECK(sum == 0 + 1 + 2 + 3);
        MPI_Barrier(children);
        MPI_Comm_disconnect(&children);
    }
    printf("%d lots of 4 came and went\n", lots);
    MPI_Finalize();
    return 0;
}
