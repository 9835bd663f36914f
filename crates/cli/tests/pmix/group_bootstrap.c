/* A bootstrapped group: each of two leaders names the members that it adds, and
 * those members call without a list.
 * run: 4
 * run: 6
 * nodes: 4
 * not: 3,4,5 (leaders exist since 6.0)
 */
#include "group.h"

/* Older headers do not define this key. */
#ifndef PMIX_GROUP_BOOTSTRAP
#define PMIX_GROUP_BOOTSTRAP "pmix.grp.btstrp"
#endif

int main(void)
{
    pmix_info_t info[3], *results = NULL;
    pmix_proc_t added[64];
    pmix_data_array_t array = {.type = PMIX_PROC, .size = 0, .array = added};
    size_t nresults = 0, leaders = 2;
    const pmix_value_t *value;
    bool yes = true, found[64] = {false};

    start();
    need_ranks(4);
    CHECK(job_size <= 64);
    if (me.rank < 2) {
        /* Rank 0 adds the even ranks, rank 1 the odd ones. */
        for (pmix_rank_t rank = me.rank + 2; rank < job_size; rank += 2) {
            added[array.size++] = peer(rank);
        }
        PMIX_INFO_LOAD(&info[0], PMIX_GROUP_BOOTSTRAP, &leaders, PMIX_SIZE);
        PMIX_INFO_LOAD(&info[1], PMIX_GROUP_ADD_MEMBERS, &array, PMIX_DATA_ARRAY);
        PMIX_INFO_LOAD(&info[2], PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
        CHECK_OK(PMIx_Group_construct("led", &me, 1, info, 3, &results, &nresults));
    } else {
        CHECK_OK(PMIx_Group_construct("led", NULL, 0, NULL, 0, &results, &nresults));
    }
    value = value_among(results, nresults, PMIX_GROUP_MEMBERSHIP);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    CHECK_NUMBER(value->data.darray->size, job_size);
    for (size_t i = 0; i < value->data.darray->size; i++) {
        pmix_proc_t *member = &((pmix_proc_t *)value->data.darray->array)[i];
        CHECK_TEXT(member->nspace, me.nspace);
        CHECK(member->rank < job_size && !found[member->rank]);
        found[member->rank] = true;
    }
    CHECK(value_among(results, nresults, PMIX_GROUP_CONTEXT_ID) != NULL);
    CHECK_OK(PMIx_Group_destruct("led", NULL, 0));
    fence();
    return finish();
}
