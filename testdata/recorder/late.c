/* Functions that some MPI libraries lack: messages with large counts. Rank 1 sends one fewer than rank 0 receives. With ADDRESS, the
 * program asks whether the library has them. */
#include <mpi.h>
#include <stdio.h>

#ifdef ADDRESS
#pragma weak MPI_Send_c
#pragma weak MPI_Recv_c
#endif

int main(int argc, char **argv) {
    int rank, word = 0;
#ifdef ADDRESS
    if (!MPI_Send_c || !MPI_Recv_c)
        return 1;
#endif
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    printf("ready\n");
    fflush(stdout);
    for (int i = 0; i < 3; i++) {
        if (rank == 0)
            MPI_Recv_c(&word, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else if (i < 2)
            MPI_Send_c(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
