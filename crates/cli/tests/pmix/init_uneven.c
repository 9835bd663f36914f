/* Rank 0 leaves and comes back while the others stay: nobody is disturbed.
 * run: 3
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

    /* A fence may find a member that has left and is not back yet, so the
     * others fence only when rank 0 is seen to be back. */
    CHECK_NUMBER(number_at_last(0, "back"), 0);
    fence_data();
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);
        CHECK_NUMBER(number_of(&other, "back"), rank);
    }
    fence();
    return finish();
}
