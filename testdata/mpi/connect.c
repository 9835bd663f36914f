/*
 * Ports and names. First within one job: its lower half opens a port and publishes it, the upper half looks it up and
 * connects. Then between two jobs that rank 0 spawns.
 */
#include "check.h"

/* Used by both sides: exchanges one number in each direction and disconnects. */
static void exchange(MPI_Comm other, int number, int expected)
{
    int got = 0, remote, rank;
    CHECK(MPI_Comm_remote_size(other, &remote) == MPI_SUCCESS);
    rank = rank_in(other);
    CHECK(remote == size_of(other));
    CHECK(MPI_Sendrecv(&number, 1, MPI_INT, rank, 3, &got, 1, MPI_INT, rank, 3, other, MPI_STATUS_IGNORE)
          == MPI_SUCCESS);
    CHECK(got == expected);
    CHECK(MPI_Comm_disconnect(&other) == MPI_SUCCESS);
}

/* Publishes a port under `name` and accepts a connection. The barrier over `ready` lets the clients look the name up. */
static void serve(MPI_Comm comm, const char *name, MPI_Comm ready)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm client;
    if (rank_in(comm) == 0) {
        CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS);
        CHECK(MPI_Publish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS);
    }
    MPI_Barrier(ready);
    CHECK(MPI_Comm_accept(port, MPI_INFO_NULL, 0, comm, &client) == MPI_SUCCESS);
    exchange(client, 100 + rank_in(comm), 200 + rank_in(comm));
    if (rank_in(comm) == 0) {
        CHECK(MPI_Unpublish_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS);
        CHECK(MPI_Close_port(port) == MPI_SUCCESS);
    }
}

static void use(MPI_Comm comm, const char *name, MPI_Comm ready)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm server;
    MPI_Barrier(ready);
    if (rank_in(comm) == 0)
        CHECK(MPI_Lookup_name(name, MPI_INFO_NULL, port) == MPI_SUCCESS);
    CHECK(MPI_Comm_connect(port, MPI_INFO_NULL, 0, comm, &server) == MPI_SUCCESS);
    exchange(server, 200 + rank_in(comm), 100 + rank_in(comm));
}

static void not_published(void)
{
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    CHECK(MPI_Lookup_name("nobody's", MPI_INFO_NULL, port) != MPI_SUCCESS);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void spawn_both(char *program)
{
    char *server[] = {"server", NULL}, *client[] = {"client", NULL};
    MPI_Comm servers, clients;
    CHECK(MPI_Comm_spawn(program, server, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &servers, MPI_ERRCODES_IGNORE)
          == MPI_SUCCESS);
    /* After this barrier the name is published. */
    MPI_Barrier(servers);
    CHECK(MPI_Comm_spawn(program, client, 2, MPI_INFO_NULL, 0, MPI_COMM_SELF, &clients, MPI_ERRCODES_IGNORE)
          == MPI_SUCCESS);
    MPI_Barrier(clients);
    CHECK(MPI_Comm_disconnect(&clients) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&servers) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    MPI_Comm parent, half;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        int size = size_of(MPI_COMM_WORLD), rank = rank_in(MPI_COMM_WORLD), upper = rank >= size / 2;
        CHECK(size % 2 == 0);
        if (rank == 0)
            not_published();
        CHECK(MPI_Comm_split(MPI_COMM_WORLD, upper, rank, &half) == MPI_SUCCESS);
        if (upper)
            use(half, "within", MPI_COMM_WORLD);
        else
            serve(half, "within", MPI_COMM_WORLD);
        MPI_Comm_free(&half);
        say(MPI_COMM_WORLD, "two halves met");
        if (rank == 0)
            spawn_both(argv[0]);
        say(MPI_COMM_WORLD, "two jobs met");
    } else if (strcmp(argv[1], "server") == 0) {
        serve(MPI_COMM_WORLD, "between", parent);
        CHECK(MPI_Comm_disconnect(&parent) == MPI_SUCCESS);
    } else {
        use(MPI_COMM_WORLD, "between", parent);
        CHECK(MPI_Comm_disconnect(&parent) == MPI_SUCCESS);
    }
    MPI_Finalize();
    return 0;
}
