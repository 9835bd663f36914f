/* Each rank writes over everything that its recorder has recorded, and goes on. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void overwrite(int byte) {
    char line[1024];
    FILE *maps = fopen("/proc/self/maps", "r");
    while (fgets(line, sizeof line, maps)) {
        unsigned long begin, end;
        if (strstr(line, "/rally-calls.") && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            memset((char *)begin + 128, byte, end - begin - 128);
    }
    fclose(maps);
}

int main(int argc, char **argv) {
    int rank, word = 0;
    MPI_Comm twin;
    MPI_Request request;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    overwrite(argc > 1 ? atoi(argv[1]) : 0xff);
    /* The program still works. */
    MPI_Comm_dup(MPI_COMM_WORLD, &twin);
    MPI_Irecv(&word, 1, MPI_INT, 1 - rank, 3, twin, &request);
    MPI_Send(&rank, 1, MPI_INT, 1 - rank, 3, twin);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_free(&twin);
    printf("ready %d\n", word);
    fflush(stdout);
    MPI_Recv(&word, 1, MPI_INT, 1 - rank, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Finalize();
    return 0;
}
