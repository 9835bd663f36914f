/* Rank 1, or every rank with the argument `all`, exits with 0 but without MPI_Finalize. The other ranks keep running for long. */
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int all = argc > 1 && strcmp(argv[1], "all") == 0;
    say(MPI_COMM_WORLD, "all are here");
    if (all || rank_in(MPI_COMM_WORLD) == 1)
        _exit(0);
    sleep(1000);
    MPI_Finalize();
    return 0;
}
