/* Fills the file system of its region but for some pages, and then makes many calls that need more of the region. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define COMMUNICATORS 40

int main(int argc, char **argv) {
    char path[512];
    int sent = 0, received;
    off_t size = 0, left = atoi(argv[1]) * 4096;
    MPI_Comm all[COMMUNICATORS];
    MPI_Init(&argc, &argv);
    snprintf(path, sizeof path, "%s/filler", getenv("RALLY_MPI_RECORD"));
    int filler = open(path, O_RDWR | O_CREAT, 0600);
    unlink(path);
    while (fallocate(filler, 0, size, 4096) == 0)
        size += 4096;
    if (size < left || ftruncate(filler, size - left) != 0)
        return 1;
    for (int tag = 0; tag < 2000; tag++) {
        MPI_Request request;
        MPI_Irecv(&received, 1, MPI_INT, 0, tag, MPI_COMM_SELF, &request);
        MPI_Send(&sent, 1, MPI_INT, 0, tag, MPI_COMM_SELF);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (tag < COMMUNICATORS)
            MPI_Comm_dup(MPI_COMM_SELF, &all[tag]);
    }
    for (int i = 0; i < COMMUNICATORS; i++)
        MPI_Barrier(all[i]);
    close(filler);
    puts("done");
    MPI_Finalize();
    return 0;
}
