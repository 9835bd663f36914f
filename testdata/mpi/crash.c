/* Rank 1 dies in the midst of MPI_Init, a moment after it has called it; the others would wait for it. */
#include <signal.h>
#include <sys/time.h>

#include "check.h"

static void die(int number)
{
    (void)number;
    /* Libraries have handlers of their own. */
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
