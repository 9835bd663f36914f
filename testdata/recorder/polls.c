/* Two ranks poll for messages in loops of their own. Without an argument nobody sends. With one, rank 0 computes between its polls. */
#include <mpi.h>
#include <stdio.h>

static volatile double sum;

int main(int argc, char **argv) {
    int rank, word = 0, found = 0;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Irecv(&word, 1, MPI_INT, 1 - rank, 7, MPI_COMM_WORLD, &request);
    printf("ready %d\n", rank);
    fflush(stdout);
    while (!found) {
        MPI_Test(&request, &found, MPI_STATUS_IGNORE);
        if (argc > 1 && rank == 0)
            for (int step = 0; step < 1000000; step++)
                sum += step;
    }
    MPI_Finalize();
    return 0;
}
