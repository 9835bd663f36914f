/* Calls MPI before MPI_Init, as MPI 4 permits, and sleeps. So there is a region, but no shared memory of the MPI library. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(void) {
    MPI_Info info;
    MPI_Info_create(&info);
    printf("ready\n");
    fflush(stdout);
    pause();
    return 0;
}
