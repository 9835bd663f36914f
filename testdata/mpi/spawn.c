/*
 * Two parents spawn three children, which run this program too, exchange messages with them, merge with them into one
 * communicator, and disconnect. Then they spawn two programs in one call, and finally a program that spawns again.
 *
 * All processes synchronize before they disconnect: with MPICH and UCX, children that send nothing may exit before their
 * parents have attached to their memory, and then the spawn fails.
 */
#include "check.h"

static void child(MPI_Comm parent, const char *part)
{
    int size = size_of(MPI_COMM_WORLD), rank = rank_in(MPI_COMM_WORLD), number = 0, sum = 0, flag = 0, *app;
    if (strcmp(part, "children") == 0) {
        int parents;
        MPI_Comm all;
        CHECK(size == 3);
        CHECK(MPI_Comm_remote_size(parent, &parents) == MPI_SUCCESS && parents == 2);
        CHECK(MPI_Bcast(&number, 1, MPI_INT, 1, parent) == MPI_SUCCESS && number == 4711);
        number += rank;
        CHECK(MPI_Send(&number, 1, MPI_INT, 0, 5, parent) == MPI_SUCCESS);
        CHECK(MPI_Intercomm_merge(parent, 1, &all) == MPI_SUCCESS);
        CHECK(size_of(all) == 5 && rank_in(all) == 2 + rank);
        number = rank_in(all);
        CHECK(MPI_Allreduce(&number, &sum, 1, MPI_INT, MPI_SUM, all) == MPI_SUCCESS && sum == 10);
        MPI_Comm_free(&all);
    } else if (strcmp(part, "first") == 0 || strcmp(part, "second") == 0) {
        /* A single MPI_COMM_WORLD of one process of the first program and two of the second. */
        int second = strcmp(part, "second") == 0;
        CHECK(size == 3 && second == (rank > 0));
        CHECK(MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, &app, &flag) == MPI_SUCCESS);
        CHECK(flag && *app == second);
        CHECK(MPI_Allreduce(&second, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && sum == 2);
    } else {
        CHECK(strcmp(part, "generation") == 0 && size == 1);
    }
    CHECK(MPI_Barrier(parent) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&parent) == MPI_SUCCESS && parent == MPI_COMM_NULL);
}

/* Spawns this program again with `left - 1`; with 0 it spawns nothing. */
static void generation(char *program, int left)
{
    char number[16];
    char *arguments[] = {"generation", number, NULL};
    MPI_Comm children;
    if (left == 0)
        return;
    snprintf(number, sizeof number, "%d", left - 1);
    CHECK(MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF, &children, MPI_ERRCODES_IGNORE)
          == MPI_SUCCESS);
    CHECK(MPI_Barrier(children) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&children) == MPI_SUCCESS);
}

static void parents(char *program)
{
    int rank = rank_in(MPI_COMM_WORLD), errors[3] = {7, 7, 7}, number = 4711, remote, sum = 0;
    char *arguments[] = {"children", NULL};
    MPI_Comm children, all;
    CHECK(size_of(MPI_COMM_WORLD) == 2);
    CHECK(MPI_Comm_spawn(program, arguments, 3, MPI_INFO_NULL, 1, MPI_COMM_WORLD, &children, errors) == MPI_SUCCESS);
    for (int i = 0; i < 3; i++)
        CHECK(errors[i] == MPI_SUCCESS);
    CHECK(MPI_Comm_remote_size(children, &remote) == MPI_SUCCESS && remote == 3);
    CHECK(MPI_Bcast(&number, 1, MPI_INT, rank == 1 ? MPI_ROOT : MPI_PROC_NULL, children) == MPI_SUCCESS);
    if (rank == 0) {
        for (int i = 0; i < 3; i++) {
            CHECK(MPI_Recv(&number, 1, MPI_INT, i, 5, children, MPI_STATUS_IGNORE) == MPI_SUCCESS);
            CHECK(number == 4711 + i);
        }
    }
    CHECK(MPI_Intercomm_merge(children, 0, &all) == MPI_SUCCESS);
    CHECK(size_of(all) == 5 && rank_in(all) == rank);
    CHECK(MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, all) == MPI_SUCCESS && sum == 10);
    MPI_Comm_free(&all);
    CHECK(MPI_Barrier(children) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&children) == MPI_SUCCESS && children == MPI_COMM_NULL);
    say(MPI_COMM_WORLD, "children came and went");

    char *programs[] = {program, program};
    char *first[] = {"first", NULL}, *second[] = {"second", NULL};
    char **all_arguments[] = {first, second};
    int counts[] = {1, 2};
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    CHECK(MPI_Comm_spawn_multiple(2, programs, all_arguments, counts, infos, 0, MPI_COMM_WORLD, &children, errors)
          == MPI_SUCCESS);
    CHECK(MPI_Comm_remote_size(children, &remote) == MPI_SUCCESS && remote == 3);
    CHECK(MPI_Barrier(children) == MPI_SUCCESS);
    CHECK(MPI_Comm_disconnect(&children) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "two programs came and went");
    if (rank == 0)
        generation(program, 2);
    say(MPI_COMM_WORLD, "three generations came and went");
}

int main(int argc, char **argv)
{
    MPI_Comm parent;
    MPI_Init(&argc, &argv);
    CHECK(MPI_Comm_get_parent(&parent) == MPI_SUCCESS);
    CHECK((parent == MPI_COMM_NULL) == (argc == 1));
    if (parent == MPI_COMM_NULL) {
        parents(argv[0]);
    } else {
        child(parent, argv[1]);
        if (argc == 3)
            generation(argv[0], atoi(argv[2]));
    }
    MPI_Finalize();
    return 0;
}
