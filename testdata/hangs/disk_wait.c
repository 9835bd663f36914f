/* Rank 3 is in uninterruptible sleep, like a process whose disk does not respond. */
#define _GNU_SOURCE
#include "begin.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* The kernel blocks a vfork parent this way until the child execs or exits, even if the child shares no memory with it. */
__attribute__((noinline)) static long read_block(void) {
    long child = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
    return child;
}

int main(void) {
    begin();
    if (rank == 3)
        read_block();
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
