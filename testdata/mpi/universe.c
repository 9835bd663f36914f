/* Prints MPI_UNIVERSE_SIZE, then spawns more processes than the node has slots. */
#include "check.h"

int main(int argc, char **argv)
{
    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    MPI_Comm parent, both;
    CHECK(MPI_Comm_get_parent(&parent) == MPI_SUCCESS);
    if (parent == MPI_COMM_NULL) {
        int *size, known;
        CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &size, &known) == MPI_SUCCESS);
        if (known)
            printf("%d could run\n", *size);
        else
            puts("nobody knows");
        fflush(stdout);
        CHECK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 4, MPI_INFO_NULL, 0, MPI_COMM_SELF, &both,
                             MPI_ERRCODES_IGNORE) == MPI_SUCCESS);
    } else {
        both = parent;
    }
    CHECK(MPI_Barrier(both) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&both) == MPI_SUCCESS);
    MPI_Finalize();
    return 0;
}
