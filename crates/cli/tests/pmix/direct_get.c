/* Without any fence, a get waits until the other rank has put and committed.
 * Every rank reads every other one, in the least favourable order.
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    start();
    if (me.rank != 0) {
        /* A chain: each rank continues only after the previous one has committed. */
        pmix_proc_t before = peer(me.rank - 1);
        CHECK_NUMBER(number_of(&before, "chain"), me.rank);
    }
    put_number(PMIX_GLOBAL, "chain", me.rank + 1);
    CHECK_OK(PMIx_Commit());
    for (pmix_rank_t rank = job_size; rank-- > 0;) {
        pmix_proc_t other = peer(rank);
        CHECK_NUMBER(number_of(&other, "chain"), rank + 1);
    }
    fence();
    return finish();
}
