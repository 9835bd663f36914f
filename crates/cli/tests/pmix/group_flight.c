/* Several concurrent group constructions with the non-blocking call, begun in
 * different orders by different ranks.
 * run: 4
 * nodes: 4
 * not: 3 (uses features of later versions)
 */
#include "group.h"

#define GROUPS 4

struct built {
    struct waiter *waiter;
    size_t context;
};

static void on_group(pmix_status_t status, pmix_info_t *info, size_t count, void *cbdata,
                     pmix_release_cbfunc_t release, void *release_data)
{
    struct built *built = cbdata;
    const pmix_value_t *value = value_among(info, count, PMIX_GROUP_CONTEXT_ID);

    if (value != NULL && value->type == PMIX_SIZE) {
        built->context = value->data.size;
    }
    if (release != NULL) {
        release(release_data);
    }
    wake(built->waiter, status);
}

int main(void)
{
    pmix_proc_t members[64];
    struct waiter constructed = WAITER, destructed = WAITER;
    struct built built[GROUPS];
    pmix_info_t info;
    char names[GROUPS][32];
    bool yes = true;
    int begun = 0;

    start();
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        members[rank] = peer(rank);
    }
    PMIX_INFO_LOAD(&info, PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint32_t which = (i + me.rank) % GROUPS;

        snprintf(names[which], sizeof(names[which]), "flight-%u", which);
        built[which].waiter = &constructed;
        built[which].context = SIZE_MAX;
        CHECK_OK(PMIx_Group_construct_nb(names[which], members, job_size, &info, 1, on_group, &built[which]));
    }
    CHECK_OK(wait_for(&constructed, GROUPS));
    for (uint32_t i = 0; i < GROUPS; i++) {
        CHECK(built[i].context != SIZE_MAX);
        for (uint32_t j = 0; j < i; j++) {
            CHECK(built[i].context != built[j].context);
        }
    }
    fence();
    for (uint32_t i = 0; i < GROUPS; i++) {
        uint32_t which = (i + me.rank) % GROUPS;
        pmix_status_t status = PMIx_Group_destruct_nb(names[which], NULL, 0, on_op, &destructed);

        /* From 6.0 on, libraries know only those groups that the blocking call has constructed. */
        if (status != PMIX_ERR_NOT_FOUND || !library_at_least(6, 0, 0)) {
            CHECK_OK(status);
            begun++;
        }
    }
    CHECK_OK(wait_for(&destructed, begun));
    fence();
    return finish();
}
