/* A group by invitation: rank 0 invites all but rank 1. The invited ranks receive
 * an event and join; then all members receive the event that the group is complete.
 * run: 4
 * nodes: 4
 * not: 3 (uses features of later versions)
 */
#include "group.h"

static struct waiter invited = WAITER, complete = WAITER;
static pmix_proc_t leader;

static void on_joined(pmix_status_t status, pmix_info_t *info, size_t count, void *cbdata,
                      pmix_release_cbfunc_t release, void *release_data)
{
    (void)info;
    (void)count;
    if (release != NULL) {
        release(release_data);
    }
    wake(cbdata, status);
}

static void on_invited(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                       pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *name = value_among(info, count, PMIX_GROUP_ID);

    (void)id;
    (void)code;
    (void)results;
    (void)nresults;
    leader = *source;
    if (name == NULL || name->type != PMIX_STRING || strcmp(name->data.string, "invited") != 0) {
        wake(&invited, PMIX_ERR_BAD_PARAM);
    } else {
        pmix_status_t status = PMIx_Group_join_nb("invited", &leader, PMIX_GROUP_ACCEPT, NULL, 0, on_joined, &invited);
        if (status != PMIX_SUCCESS) {
            wake(&invited, status);
        }
    }
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

static void on_complete(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                        pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    (void)id;
    (void)code;
    (void)source;
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    wake(&complete, PMIX_SUCCESS);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

int main(void)
{
    pmix_status_t code = PMIX_GROUP_INVITED, finished = PMIX_GROUP_CONSTRUCT_COMPLETE;
    pmix_proc_t members[64];
    size_t count = 0;

    start();
    need_ranks(4);
    CHECK(job_size <= 64);
    members[count++] = peer(0);
    for (pmix_rank_t rank = 2; rank < job_size; rank++) {
        members[count++] = peer(rank);
    }
    handle_events(&code, 1, NULL, 0, on_invited);
    if (me.rank >= 2) {
        handle_events(&finished, 1, NULL, 0, on_complete);
    }
    fence();
    if (me.rank == 0) {
        pmix_info_t *results = NULL;
        size_t nresults = 0;

        CHECK_OK(PMIx_Group_invite("invited", members, count, NULL, 0, &results, &nresults));
        PMIX_INFO_FREE(results, nresults);
    }
    if (me.rank >= 2) {
        CHECK_OK(wait_for(&complete, 1));
        CHECK_NUMBER(leader.rank, 0);
    }
    if (me.rank != 1) {
        CHECK_OK(PMIx_Fence(members, count, NULL, 0));
        /* Some libraries do not know a group constructed by invitation. */
        AT("PMIx_Group_destruct");
        (void)PMIx_Group_destruct("invited", NULL, 0);
    }
    fence();
    if (me.rank == 1) {
        CHECK_NUMBER(invited.done, 0);
    }
    return finish();
}
