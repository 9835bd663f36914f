/* A group whose leader adds its whole job by the name NSPACE:WILDCARD, after
 * the other ranks have called.
 * run: 2
 * run: 4
 * nodes: 4
 * not: 3,4,5 (leaders exist since 6.0)
 */
#include "group.h"

/* Older headers do not define this key. */
#ifndef PMIX_GROUP_BOOTSTRAP
#define PMIX_GROUP_BOOTSTRAP "pmix.grp.btstrp"
#endif

static void on_group(pmix_status_t status, pmix_info_t *info, size_t count, void *cbdata,
                     pmix_release_cbfunc_t release, void *release_data)
{
    (void)info;
    (void)count;
    if (release != NULL) {
        release(release_data);
    }
    wake(cbdata, status);
}

int main(void)
{
    struct waiter called = WAITER;
    pmix_info_t info[2], *results = NULL;
    pmix_proc_t everybody;
    pmix_data_array_t array = {.type = PMIX_PROC, .size = 1, .array = &everybody};
    size_t nresults = 0, leaders = 1;
    const pmix_value_t *value;

    start();
    need_ranks(2);
    everybody = peer(PMIX_RANK_WILDCARD);
    if (me.rank != 0) {
        CHECK_OK(PMIx_Group_construct_nb("everybody", NULL, 0, NULL, 0, on_group, &called));
    }
    fence();
    if (me.rank != 0) {
        CHECK_OK(wait_for(&called, 1));
        return finish();
    }
    PMIX_INFO_LOAD(&info[0], PMIX_GROUP_BOOTSTRAP, &leaders, PMIX_SIZE);
    PMIX_INFO_LOAD(&info[1], PMIX_GROUP_ADD_MEMBERS, &array, PMIX_DATA_ARRAY);
    CHECK_OK(PMIx_Group_construct("everybody", &me, 1, info, 2, &results, &nresults));
    value = value_among(results, nresults, PMIX_GROUP_MEMBERSHIP);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    CHECK_NUMBER(value->data.darray->size, 1);
    CHECK(same_proc(value->data.darray->array, &everybody));
    return finish();
}
