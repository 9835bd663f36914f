/* The launcher returns the exit code of a rank that is a client, whether the
 * rank has finalized, has not finalized, or was killed.
 * run: 3 finalized => 9
 * run: 3 unfinalized => 9
 * run: 3 zero-unfinalized => any
 * run: 2 killed => nonzero
 * nodes: 2 killed => nonzero
 */
#include "check.h"

int main(int argc, char **argv)
{
    start();
    CHECK(argc == 2);
    fence();
    passed();
    fence();
    if (strcmp(argv[1], "finalized") == 0) {
        CHECK_OK(PMIx_Finalize(NULL, 0));
        return me.rank == 1 ? 9 : 0;
    }
    if (me.rank == job_size - 1) {
        if (strcmp(argv[1], "killed") == 0) {
            kill(getpid(), SIGKILL);
        }
        _exit(strcmp(argv[1], "unfinalized") == 0 ? 9 : 0);
    }
    return finish();
}
