/* Rank 1 crashes inside MPI_Init, 3 ms after calling it; the other ranks would wait for it. */
#include <signal.h>
#include <sys/time.h>

#include "check.h"

static void die(int number)
{
    (void)number;
    /* MPI libraries install handlers for SIGABRT. */
    signal(SIGABRT, SIG_DFL);
    abort();
}

int main(int argc, char **argv)
{
    struct itimerval soon = {.it_value = {.tv_usec = 3000}};
    if (strcmp(getenv("RALLY_RANK"), "1") == 0) {
        signal(SIGALRM, die);
        setitimer(ITIMER_REAL, &soon, NULL);
    }
    MPI_Init(&argc, &argv);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
