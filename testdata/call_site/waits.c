/* Four ranks that wait for ever, each in another call. `dbgr` reads what they wait for from their code. */
#include <mpi.h>
#include <stdio.h>

/* The compiler must not call it later than it is written, so that the result is kept in a register, or on the stack. */
__attribute__((noinline)) static int neighbor(int rank) {
    __asm__ volatile("");
    return rank ^ 1;
}

int main(int argc, char **argv) {
    int rank, word = 0, peer;
    MPI_Comm copy;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    peer = neighbor(rank);
    printf("ready\n");
    fflush(stdout);
    if (rank == 0)
        MPI_Recv(&word, 1, MPI_INT, 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else if (rank == 1)
        MPI_Ssend(&word, 1, MPI_INT, peer, 5, MPI_COMM_WORLD);
    else if (rank == 2)
        MPI_Sendrecv(&word, 1, MPI_INT, peer, 1, &word, 1, MPI_INT, MPI_ANY_SOURCE, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    else
        MPI_Bcast(&word, 1, MPI_INT, 2, copy);
    MPI_Finalize();
    return 0;
}
