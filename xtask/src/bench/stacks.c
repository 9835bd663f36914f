/* A rank that sleeps several calls deep; with -DMPI it calls MPI_Init first. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#ifdef MPI
#include <mpi.h>
#endif

static inline __attribute__((always_inline)) int asleep(int depth) {
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        sleep(1000);
    }
    return depth;
}

__attribute__((noinline)) static int solve(int depth) {
    return depth ? solve(depth - 1) + 1 : asleep(depth);
}

int main(int argc, char **argv) {
#ifdef MPI
    MPI_Init(&argc, &argv);
#endif
    return solve(argc > 1 ? atoi(argv[1]) : 10);
}
