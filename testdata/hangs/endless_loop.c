/* Rank 3 computes in an endless loop. */
#include "begin.h"

__attribute__((noinline)) static void compute(volatile long *steps) {
    for (;;) ++*steps;
}

int main(void) {
    volatile long steps = 0;
    begin();
    if (rank == 3)
        compute(&steps);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
