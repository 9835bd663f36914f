/* A connect with a timeout that not every participant joins returns an error.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_proc_t all;
    pmix_info_t info;
    int seconds = 1;

    start();
    need_ranks(2);
    all = peer(PMIX_RANK_WILDCARD);
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
        CHECK_ERROR(PMIx_Connect(&all, 1, &info, 1));
    }
    fence();
    return finish();
}
