/* Repeated commits: new keys are added to the old ones, a key put again gets
 * the new value, and a commit without new data succeeds.
 * run: 3
 * nodes: 3
 */
#include "check.h"

int main(void)
{
    pmix_proc_t other;

    start();
    CHECK_OK(PMIx_Commit());
    put_number(PMIX_GLOBAL, "twice", 1);
    put_number(PMIX_GLOBAL, "first", me.rank);
    CHECK_OK(PMIx_Commit());
    CHECK_OK(PMIx_Commit());
    put_number(PMIX_GLOBAL, "twice", 2);
    put_number(PMIX_GLOBAL, "twice", 100 + me.rank);
    put_number(PMIX_GLOBAL, "second", me.rank + 1);
    CHECK_OK(PMIx_Commit());
    fence_data();

    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        other = peer(rank);
        CHECK_NUMBER(number_of(&other, "twice"), 100 + rank);
        CHECK_NUMBER(number_of(&other, "first"), rank);
        CHECK_NUMBER(number_of(&other, "second"), rank + 1);
    }

    /* Another type under the same key, read by a rank that has not read the key yet. */
    put_text(PMIX_GLOBAL, "third", "text");
    put_number(PMIX_GLOBAL, "third", 3);
    CHECK_OK(PMIx_Commit());
    fence_data();
    other = peer((me.rank + 1) % job_size);
    CHECK_NUMBER(number_of(&other, "third"), 3);
    fence();
    return finish();
}
