/* A group of all ranks, without a context id: constructed, destructed, and
 * constructed again under the same name.
 * run: 1
 * run: 4
 * nodes: 4
 * not: 3 (uses features of later versions)
 */
#include "group.h"

int main(void)
{
    pmix_proc_t members[64];
    pmix_info_t *results = NULL;
    size_t nresults = 0;

    start();
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        members[rank] = peer(rank);
    }
    for (int round = 0; round < 5; round++) {
        CHECK_OK(PMIx_Group_construct("everybody", members, job_size, NULL, 0, &results, &nresults));
        PMIX_INFO_FREE(results, nresults);
        CHECK_OK(PMIx_Fence(members, job_size, NULL, 0));
        CHECK_OK(PMIx_Group_destruct("everybody", NULL, 0));
    }
    fence();
    return finish();
}
