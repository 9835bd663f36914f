/* Messages in four partitions. As the argument says: healthy: again and again; late: rank 1 never readies the last partition of the
   second message. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#define PARTS 4

int main(int argc, char **argv) {
    int rank, words[PARTS] = {0}, word = 0, there;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0)
        MPI_Precv_init(words, PARTS, 1, MPI_INT, 1, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    else
        MPI_Psend_init(words, PARTS, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (int message = 0;; message++) {
        int last = strcmp(argv[1], "healthy") ? message : 0;
        MPI_Start(&request);
        for (int part = 0; part < PARTS - last; part++)
            if (rank == 1)
                MPI_Pready(part, request);
            else if (!last)
                do
                    MPI_Parrived(request, part, &there);
                while (!there);
        if (message == 0) {
            printf("ready\n");
            fflush(stdout);
        }
        if (last && rank == 1)
            break;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
    MPI_Recv(&word, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
