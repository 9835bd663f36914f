/* Some ranks are PMIx clients; the others exit without PMIx_Init. The clients
 * can fence, and the job ends normally.
 * run: 2
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    const char *rank = getenv("PMIX_RANK");
    pmix_proc_t some[64];
    size_t count = 0;

    start_deadline();
    CHECK(rank != NULL);
    if (strtoul(rank, NULL, 10) % 2 == 1) {
        return 0;
    }
    CHECK_OK(PMIx_Init(&me, NULL, 0));
    some[count] = peer(PMIX_RANK_WILDCARD);
    job_size = (uint32_t)number_of(&some[0], PMIX_JOB_SIZE);
    for (pmix_rank_t other = 0; other < job_size; other += 2) {
        some[count++] = peer(other);
    }
    CHECK_OK(PMIx_Fence(some, count, NULL, 0));
    return finish();
}
