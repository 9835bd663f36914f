/* A fence that collects data over some of the ranks: its participants get each
 * other's data, and a required directive that is known causes no error.
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_proc_t half[64];
    size_t count = 0;
    pmix_info_t info[2];
    bool yes = true;
    int seconds = 30;

    start();
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = me.rank % 2; rank < job_size; rank += 2) {
        half[count++] = peer(rank);
    }
    put_number(PMIX_GLOBAL, "half", me.rank * 3);
    CHECK_OK(PMIx_Commit());
    PMIX_INFO_LOAD(&info[0], PMIX_COLLECT_DATA, &yes, PMIX_BOOL);
    PMIX_INFO_REQUIRED(&info[0]);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    CHECK_OK(PMIx_Fence(half, count, info, 2));
    for (size_t i = 0; i < count; i++) {
        CHECK_NUMBER(number_of(&half[i], "half"), half[i].rank * 3);
    }
    fence();
    return finish();
}
