/* Rank 3 sleeps where no signal reaches it, as one does whose disk does not answer. */
#define _GNU_SOURCE
#include "begin.h"
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

/* The kernel lets a parent wait so for a child that shares nothing with it and never becomes another program. */
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
