/* Several concurrent fences: over all ranks, over the even and the odd ones,
 * and over neighbours; different ranks enter them in different orders.
 * run: 4
 * run: 8
 * nodes: 8
 */
#include "check.h"

int main(void)
{
    pmix_proc_t sets[4][8];
    size_t sizes[4] = {0, 0, 0, 0};
    pmix_info_t collect;
    bool yes = true;

    start();
    need_ranks(2);
    CHECK(job_size <= 8);
    PMIX_INFO_LOAD(&collect, PMIX_COLLECT_DATA, &yes, PMIX_BOOL);

    sets[0][sizes[0]++] = peer(PMIX_RANK_WILDCARD);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        if (rank % 2 == me.rank % 2) {
            sets[1][sizes[1]++] = peer(rank);
        }
        if (rank / 2 == me.rank / 2) {
            sets[2][sizes[2]++] = peer(rank);
        }
    }
    sets[3][sizes[3]++] = me;

    for (uint32_t round = 0; round < 50; round++) {
        struct waiter done = WAITER;

        for (uint32_t i = 0; i < 4; i++) {
            uint32_t which = (i + me.rank + round) % 4;
            /* Collect data only in the fence whose set of ranks is unique. */
            CHECK_OK(PMIx_Fence_nb(sets[which], sizes[which], which == 0 ? &collect : NULL, which == 0 ? 1 : 0, on_op,
                                   &done));
        }
        CHECK_OK(wait_for(&done, 4));
    }
    return finish();
}
