/* A get that does not name the rank (PMIX_RANK_UNDEF): the key is unique in the
 * job, so there is exactly one answer.
 * run: 3
 * nodes: 3
 */
#include "check.h"

int main(void)
{
    pmix_proc_t somebody;
    char key[32];

    start();
    snprintf(key, sizeof(key), "only-of-%u", me.rank);
    put_number(PMIX_GLOBAL, key, me.rank + 50);
    CHECK_OK(PMIx_Commit());
    fence_data();
    somebody = peer(PMIX_RANK_UNDEF);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        snprintf(key, sizeof(key), "only-of-%u", rank);
        CHECK_NUMBER(number_of(&somebody, key), rank + 50);
    }
    fence();
    return finish();
}
