/* Rank 0 spawns a process on each of the nodes in its arguments, by the info `host`. They report where they are. */
#include "check.h"

enum { LENGTH = 256 };

int main(int argc, char **argv)
{
    char name[LENGTH] = "";
    MPI_Comm parent, child;
    MPI_Info info;
    MPI_Init(&argc, &argv);
    CHECK(MPI_Comm_get_parent(&parent) == MPI_SUCCESS);
    if (parent != MPI_COMM_NULL) {
        snprintf(name, sizeof name, "%s", getenv("PMIX_HOSTNAME"));
        CHECK(MPI_Send(name, LENGTH, MPI_CHAR, 0, 0, parent) == MPI_SUCCESS);
        CHECK(MPI_Barrier(parent) == MPI_SUCCESS);
        CHECK(MPI_Comm_disconnect(&parent) == MPI_SUCCESS);
        MPI_Finalize();
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        CHECK(MPI_Info_create(&info) == MPI_SUCCESS);
        CHECK(MPI_Info_set(info, "host", argv[i]) == MPI_SUCCESS);
        CHECK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, info, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE) == MPI_SUCCESS);
        CHECK(MPI_Info_free(&info) == MPI_SUCCESS);
        if (rank_in(MPI_COMM_WORLD) == 0) {
            CHECK(MPI_Recv(name, LENGTH, MPI_CHAR, 0, 0, child, MPI_STATUS_IGNORE) == MPI_SUCCESS);
            CHECK(strcmp(name, argv[i]) == 0);
        }
        CHECK(MPI_Barrier(child) == MPI_SUCCESS);
        CHECK(MPI_Comm_disconnect(&child) == MPI_SUCCESS);
    }
    say(MPI_COMM_WORLD, "all were where they belong");
    MPI_Finalize();
    return 0;
}
