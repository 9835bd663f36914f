/* A spawned child ends abnormally, as its argument says, while all other processes wait for it. */
#include <mpi.h>

#include "check.h"

int main(int argc, char **argv)
{
    MPI_Comm parent, children;
    int rank;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        char *args[] = {argv[1], NULL};

        MPI_Comm_spawn(argv[0], args, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
        MPI_Barrier(children);
        MPI_Barrier(children);
    } else {
        MPI_Barrier(parent);
        if (rank == 1) {
            if (strcmp(argv[1], "aborts") == 0)
                MPI_Abort(MPI_COMM_WORLD, 42);
            if (strcmp(argv[1], "crashes") == 0)
                abort();
            _exit(9);
        }
        MPI_Barrier(parent);
    }
    printf("nobody comes here\n");
    MPI_Finalize();
    return 0;
}
