/* Rank 3 is stopped while the other ranks open a file collectively. */
#include "begin.h"

static volatile double sink;

__attribute__((noinline)) static void compute(void) {
    for (;;) sink += 0.5;
}

int main(void) {
    MPI_File file;
    begin();
    if (rank == 3)
        compute();
    MPI_File_open(MPI_COMM_WORLD, "/dev/null", MPI_MODE_RDONLY, MPI_INFO_NULL, &file);
    MPI_Finalize();
    return 0;
}
