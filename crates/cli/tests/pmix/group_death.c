/* A member dies while the others construct a group with it: they get an error,
 * and can construct a group without it.
 * run: 4 -- keep-going
 * nodes: 4 -- keep-going
 * not: 3 (uses features of later versions)
 */
#include "group.h"

int main(void)
{
    pmix_proc_t members[64];
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;
    bool yes = true;

    start();
    need_ranks(3);
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        members[rank] = peer(rank);
    }
    PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    fence();
    if (me.rank == job_size - 1) {
        for (pmix_rank_t rank = 0; rank + 1 < job_size; rank++) {
            number_at_last(rank, "ready");
        }
        kill(getpid(), SIGKILL);
    }
    put_number(PMIX_GLOBAL, "ready", 1);
    CHECK_OK(PMIx_Commit());
    CHECK_ERROR(PMIx_Group_construct("doomed", members, job_size, &info, 1, &results, &nresults));
    construct("survivors", members, job_size - 1);
    CHECK_OK(PMIx_Group_destruct("survivors", NULL, 0));
    return finish();
}
