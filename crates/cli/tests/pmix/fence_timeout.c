/* A fence with a timeout that not every participant joins in time: the waiting
 * ranks get PMIX_ERR_TIMEOUT, and a later fence over the same set works.
 * run: 3
 * nodes: 3
 */
#include "check.h"

int main(void)
{
    pmix_proc_t two[2];
    pmix_info_t info;
    int seconds = 1;

    start();
    need_ranks(2);
    two[0] = peer(0);
    two[1] = peer(1);
    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    if (me.rank == 0) {
        CHECK_STATUS(PMIx_Fence(two, 2, &info, 1), PMIX_ERR_TIMEOUT);
    }
    fence();
    if (me.rank < 2) {
        CHECK_OK(PMIx_Fence(two, 2, NULL, 0));
    }
    fence();
    return finish();
}
