/* Its child runs on its stack and sleeps, and it waits for that. */
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
