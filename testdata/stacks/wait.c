/* A rank that waits in a function of its own until the file that its argument names is there. */
#define _GNU_SOURCE
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#ifndef PLAIN
#include <mpi.h>
#endif

__attribute__((noinline)) void wait_here(const char *file)
{
    const struct timespec moment = {0, 5000000};
    while (access(file, F_OK) != 0)
        nanosleep(&moment, NULL);
}

int main(int argc, char **argv)
{
#ifndef PLAIN
    MPI_Init(&argc, &argv);
#endif
    if (argc != 2)
        return 2;
    puts("ready");
    fflush(stdout);
    wait_here(argv[1]);
#ifndef PLAIN
    MPI_Finalize();
#endif
    return 0;
}
