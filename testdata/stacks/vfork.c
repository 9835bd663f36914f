/* The child runs on its parent's stack and sleeps, and the parent waits for it. */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

__attribute__((noinline)) static void starter(void) {
    if (vfork() == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        write(1, "ready\n", 6);
        for (;;) {
            pause();
        }
    }
}

int main(void) {
    starter();
}
