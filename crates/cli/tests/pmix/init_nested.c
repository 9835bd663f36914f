/* PMIx_Init three times: the process is a client until the third PMIx_Finalize.
 * run: 3
 * nodes: 3
 */
#include "check.h"

int main(void)
{
    pmix_proc_t same;

    start();
    for (int i = 0; i < 2; i++) {
        /* A caller that does not need its name passes NULL. */
        CHECK_OK(PMIx_Init(i == 0 ? &same : NULL, NULL, 0));
    }
    CHECK(same_proc(&same, &me));
    put_number(PMIX_GLOBAL, "nested", me.rank + 7);
    CHECK_OK(PMIx_Finalize(NULL, 0));
    CHECK_OK(PMIx_Commit());
    fence_data();
    CHECK_OK(PMIx_Finalize(NULL, 0));
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);
        CHECK_NUMBER(number_of(&other, "nested"), rank + 7);
    }
    fence();
    return finish();
}
