/* The exit code of a rank that is a client is the launcher's, whatever it did
 * about PMIx: finalized, not finalized, killed.
 * run: 3 finalized => 9
 * run: 3 unfinalized => 9
 * run: 3 zero-unfinalized => any
 * run: 2 killed => nonzero
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
