/* Parent and child are clients under the same name at the same time (a clone).
 * The child reads, and connects and disconnects without disturbing the parent.
 * run: 2
 * nodes: 2
 */
#include "check.h"

/* The child executes the program again, as a library that forks would do. */
static int clone_main(void)
{
    pmix_proc_t other;

    start();
    other = peer((me.rank + 1) % job_size);
    CHECK_NUMBER(number_of(&other, "of-the-parent"), other.rank);
    return finish();
}

int main(int argc, char **argv)
{
    int status = 0;
    pid_t child;

    if (argc > 1) {
        return clone_main();
    }
    start();
    put_number(PMIX_GLOBAL, "of-the-parent", me.rank);
    CHECK_OK(PMIx_Commit());
    fence_data();
    for (int round = 0; round < 3; round++) {
        child = fork();
        if (child == 0) {
            execl("/proc/self/exe", argv[0], "clone", (char *)NULL);
            _exit(126);
        }
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFEXITED(status));
        CHECK_NUMBER(WEXITSTATUS(status), 0);
        fence();
    }
    return finish();
}
