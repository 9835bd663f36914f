/* A client finalizes and then executes another program, which becomes a client
 * under the same name.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(int argc, char **argv)
{
    if (argc == 1) {
        start();
        fence();
        CHECK_OK(PMIx_Finalize(NULL, 0));
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        return 126;
    }
    start();
    put_number(PMIX_GLOBAL, "again", me.rank);
    CHECK_OK(PMIx_Commit());
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        CHECK_NUMBER(number_at_last(rank, "again"), rank);
    }
    fence();
    return finish();
}
