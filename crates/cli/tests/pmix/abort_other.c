/* One rank aborts only one other rank; the rest of the job continues and exits normally.
 * run: 3 -- keep-going => any
 * nodes: 3 -- keep-going => any
 */
#include "check.h"

int main(void)
{
    pmix_proc_t victim, living[64];
    pmix_status_t status;

    start();
    need_ranks(3);
    CHECK(job_size <= 64);
    victim = peer(job_size - 1);
    fence();
    if (me.rank == job_size - 1) {
        for (;;) {
            pause();
        }
    }
    if (me.rank == 0) {
        AT("PMIx_Abort");
        status = PMIx_Abort(3, "only that one", &victim, 1);
        if (status != PMIX_SUCCESS && status != PMIX_ERR_NOT_SUPPORTED) {
            FAIL("PMIx_Abort of another rank: expected success or PMIX_ERR_NOT_SUPPORTED, got %s",
                 PMIx_Error_string(status));
        }
        if (status == PMIX_ERR_NOT_SUPPORTED) {
            passed();
            (void)PMIx_Abort(3, "all then", NULL, 0);
        }
    }
    for (pmix_rank_t rank = 0; rank + 1 < job_size; rank++) {
        living[rank] = peer(rank);
    }
    CHECK_OK(PMIx_Fence(living, job_size - 1, NULL, 0));
    passed();
    return finish();
}
