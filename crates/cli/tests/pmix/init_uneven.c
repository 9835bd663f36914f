/* Rank 0 finalizes and initializes again while the other ranks stay connected; none of them is disturbed.
 * run: 3
 * nodes: 3
 * not: 5.0 (its second PMIx_Finalize frees the topology twice)
 */
#include "check.h"

int main(void)
{
    start();
    fence();
    if (me.rank == 0) {
        CHECK_OK(PMIx_Finalize(NULL, 0));
        CHECK_OK(PMIx_Init(&me, NULL, 0));
    }
    put_number(PMIX_GLOBAL, "back", me.rank);
    CHECK_OK(PMIx_Commit());

    /* A fence may include a member that has finalized and not initialized
     * again yet, so the others fence only after rank 0 has initialized. */
    CHECK_NUMBER(number_at_last(0, "back"), 0);
    fence_data();
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);
        CHECK_NUMBER(number_of(&other, "back"), rank);
    }
    fence();
    return finish();
}
