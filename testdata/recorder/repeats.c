/* Messages that repeat the last one, and messages that nearly do. Then rank 1 waits for one more: on WORLD, or on a communicator whose
 * handle another one had before. Or rank 0 sends one more, which is too large to leave without its receiver. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { SAME = 1, OTHER, LARGE = 1 << 20 };
static int large[LARGE];

static void send(int times, int to, int tag, MPI_Comm comm) {
    for (int i = 0; i < times; i++)
        MPI_Send(&i, 1, MPI_INT, to, tag, comm);
}

static void receive(int times, int from, int tag, MPI_Comm comm) {
    int word;
    for (int i = 0; i < times; i++)
        MPI_Recv(&word, 1, MPI_INT, from, tag, comm, MPI_STATUS_IGNORE);
}

/* Sends as often as rank 1 receives. */
static void exchange(int rank, int times, int tag, MPI_Comm comm) {
    if (rank == 0)
        send(times, 1, tag, comm);
    else
        receive(times, 0, tag, comm);
}

int main(int argc, char **argv) {
    int rank, word = 0;
    MPI_Comm twin;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    exchange(rank, 5, SAME, MPI_COMM_WORLD);
    exchange(rank, 3, OTHER, MPI_COMM_WORLD);
    exchange(rank, 1, SAME, MPI_COMM_WORLD);
    if (rank == 0) {
        send(4, MPI_PROC_NULL, SAME, MPI_COMM_WORLD);
        for (int i = 0; i < 3; i++)
            MPI_Ssend(&word, 1, MPI_INT, 1, SAME, MPI_COMM_WORLD);
        for (int i = 0; i < 3; i++)
            PMPI_Send(&word, 1, MPI_INT, 1, SAME, MPI_COMM_WORLD);
    } else {
        receive(4, MPI_PROC_NULL, SAME, MPI_COMM_WORLD);
        receive(6, 0, SAME, MPI_COMM_WORLD);
    }
    for (int times = 3; times < 6; times++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &twin);
        exchange(rank, times, SAME, twin);
        if (times < 5)
            MPI_Comm_free(&twin);
    }
    exchange(rank, 2, SAME, MPI_COMM_WORLD);
    if (strcmp(argv[1], "fails") == 0) {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        send(4, 2, SAME, MPI_COMM_WORLD);
    }
    printf("ready\n");
    fflush(stdout);
    if (strcmp(argv[1], "large") == 0) {
        if (rank == 0)
            MPI_Send(large, LARGE, MPI_INT, 1, SAME, MPI_COMM_WORLD);
    } else if (rank == 1)
        MPI_Recv(&word, 1, MPI_INT, 0, SAME, strcmp(argv[1], "twin") == 0 ? twin : MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
