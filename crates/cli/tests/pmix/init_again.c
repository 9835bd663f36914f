/* Init, work and finalize, eight times in one process.
 * run: 3
 * run: 1
 * not: 5.0 (its second PMIx_Finalize frees the topology twice)
 */
#include "check.h"

int main(void)
{
    start_deadline();
    for (uint32_t round = 0; round < 8; round++) {
        char key[32];
        pmix_proc_t all;

        CHECK_OK(PMIx_Init(&me, NULL, 0));
        all = peer(PMIX_RANK_WILDCARD);
        job_size = (uint32_t)number_of(&all, PMIX_JOB_SIZE);
        snprintf(key, sizeof(key), "round-%u", round);
        put_number(PMIX_GLOBAL, key, round * 100 + me.rank);
        CHECK_OK(PMIx_Commit());

        /* A fence may include a member that has finalized and not initialized
         * again yet, so this waits until every rank has initialized. */
        for (pmix_rank_t rank = 0; rank < job_size; rank++) {
            CHECK_NUMBER(number_at_last(rank, key), round * 100 + rank);
        }
        fence();
        CHECK_OK(PMIx_Finalize(NULL, 0));
        CHECK(!PMIx_Initialized());
    }
    return 0;
}
