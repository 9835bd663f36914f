/* Connect and disconnect within one job: all ranks, some of them, several
 * times, and with the non-blocking calls.
 * run: 1
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_proc_t all, pair[2];
    struct waiter done = WAITER;

    start();
    all = peer(PMIX_RANK_WILDCARD);
    for (int round = 0; round < 3; round++) {
        CHECK_OK(PMIx_Connect(&all, 1, NULL, 0));
        fence();
        CHECK_OK(PMIx_Disconnect(&all, 1, NULL, 0));
    }
    if (job_size >= 2 && me.rank < 2) {
        pair[0] = peer(0);
        pair[1] = peer(1);
        CHECK_OK(PMIx_Connect_nb(pair, 2, NULL, 0, on_op, &done));
        CHECK_OK(wait_for(&done, 1));
        CHECK_OK(PMIx_Disconnect_nb(pair, 2, NULL, 0, on_op, &done));
        CHECK_OK(wait_for(&done, 2));
    }
    fence();
    return finish();
}
