/* Two ranks spawn two more of the same program, and talk with them. Then, as the argument says:
   waits: rank 0 waits for a child that is busy; fails: the parents wait for each other; child: the children do. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, word = 0, is_child;
    MPI_Comm between, all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_get_parent(&between);
    is_child = between != MPI_COMM_NULL;
    if (!is_child)
        MPI_Comm_spawn(argv[0], argv + 1, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &between, MPI_ERRCODES_IGNORE);
    MPI_Bcast(&word, 1, MPI_INT, is_child ? 0 : rank ? MPI_PROC_NULL : MPI_ROOT, between);
    MPI_Sendrecv(&rank, 1, MPI_INT, rank, 2, &word, 1, MPI_INT, rank, 2, between, MPI_STATUS_IGNORE);
    MPI_Intercomm_merge(between, is_child, &all);
    MPI_Barrier(all);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("ready\n");
    fflush(stdout);
    if (!strcmp(argv[1], "waits")) {
        if (is_child)
            pause();
        if (rank == 0)
            MPI_Recv(&word, 1, MPI_INT, 1, 7, between, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (is_child == !strcmp(argv[1], "child")) {
        if (rank == 0)
            MPI_Recv(&word, 1, MPI_INT, 1, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Barrier(between);
    MPI_Finalize();
    return 0;
}
