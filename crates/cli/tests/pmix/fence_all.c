/* The ways to name the whole job: no list, the wildcard rank, every rank. Each
 * fence must really synchronize.
 * run: 1
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_proc_t all, *each;

    start();
    all = peer(PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Fence(NULL, 0, NULL, 0));
    CHECK_OK(PMIx_Fence(&all, 1, NULL, 0));
    each = calloc(job_size, sizeof(*each));
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        each[rank] = peer(rank);
    }
    CHECK_OK(PMIx_Fence(each, job_size, NULL, 0));

    /* A rank that has left the fence can read what every other one committed. */
    for (uint32_t round = 0; round < 20; round++) {
        pmix_info_t immediate;
        bool yes = true;
        char key[32];

        snprintf(key, sizeof(key), "before-%u", round);
        PMIX_INFO_LOAD(&immediate, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
        put_number(PMIX_GLOBAL, key, me.rank);
        CHECK_OK(PMIx_Commit());
        CHECK_OK(PMIx_Fence(each, job_size, NULL, 0));
        for (pmix_rank_t rank = 0; rank < job_size; rank++) {
            pmix_value_t *value = NULL;
            /* The server of this node alone need not know the data of other nodes. */
            CHECK_OK(PMIx_Get(&each[rank], key, &immediate, is_here(&each[rank]) ? 1 : 0, &value));
            CHECK_NUMBER(number_in(value), rank);
            PMIX_VALUE_RELEASE(value);
        }
    }
    free(each);
    return finish();
}
