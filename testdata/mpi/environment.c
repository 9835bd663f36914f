/*
 * Checks that the environment and MPI agree. Arguments: the app's number, and the rank counts of all apps, for example
 * "2 1". With a third argument rank 0 spawns one more rank, which gets the node's next rank number.
 */
#include "check.h"

static int number(const char *name)
{
    const char *text = getenv(name);
    if (!text)
        fprintf(stderr, "%s is not set\n", name);
    return text ? atoi(text) : -1;
}

int main(int argc, char **argv)
{
    int *attribute, flag;
    MPI_Comm parent, node, child;
    MPI_Init(&argc, &argv);
    int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
    MPI_Comm_get_parent(&parent);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node);
    const char *families[] = {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RALLY_RANK"};
    for (int i = 0; i < 4; i++)
        CHECK(number(families[i]) == rank);
    CHECK(number("OMPI_COMM_WORLD_SIZE") == size);
    CHECK(number("PMI_SIZE") == size);
    CHECK(number("RALLY_SIZE") == size);
    CHECK(number("OMPI_COMM_WORLD_LOCAL_RANK") == rank_in(node));
    CHECK(number("MPI_LOCALRANKID") == rank_in(node));
    CHECK(number("OMPI_COMM_WORLD_LOCAL_SIZE") == size_of(node));
    CHECK(number("MPI_LOCALNRANKS") == size_of(node));
    if (parent != MPI_COMM_NULL) {
        /* The other ranks of the node are the three parents. */
        CHECK(number("OMPI_COMM_WORLD_NODE_RANK") == 3);
        /* The child waits until its parent has met it. */
        MPI_Barrier(parent);
        MPI_Comm_disconnect(&parent);
        MPI_Finalize();
        return 0;
    }
    CHECK(number("OMPI_COMM_WORLD_NODE_RANK") == rank_in(node));
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_UNIVERSE_SIZE, &attribute, &flag) == MPI_SUCCESS);
    CHECK(!flag || number("OMPI_UNIVERSE_SIZE") == *attribute);
    CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &attribute, &flag) == MPI_SUCCESS);
    CHECK(flag && *attribute == atoi(argv[1]));
    CHECK(strcmp(getenv("OMPI_APP_CTX_NUM_PROCS"), argv[2]) == 0);
    if (argc == 4 && rank == 0) {
        CHECK(MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &child, MPI_ERRCODES_IGNORE)
              == MPI_SUCCESS);
        MPI_Barrier(child);
        MPI_Comm_disconnect(&child);
    }
    say(MPI_COMM_WORLD, "the environment says the same");
    MPI_Comm_free(&node);
    MPI_Finalize();
    return 0;
}
