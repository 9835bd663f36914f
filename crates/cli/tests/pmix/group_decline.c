/* An invitation that is declined: the inviter gets an error, and no rank hangs.
 * run: 3
 * nodes: 3
 * not: 3,4,5,6 (the library never answers a declined invitation, under prterun either)
 */
#include "group.h"

static struct waiter answered = WAITER;

static void on_joined(pmix_status_t status, pmix_info_t *info, size_t count, void *cbdata,
                      pmix_release_cbfunc_t release, void *release_data)
{
    (void)status;
    (void)info;
    (void)count;
    if (release != NULL) {
        release(release_data);
    }
    wake(cbdata, PMIX_SUCCESS);
}

static void on_invited(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                       pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    static pmix_proc_t leader;
    pmix_group_opt_t answer = me.rank == 1 ? PMIX_GROUP_ACCEPT : PMIX_GROUP_DECLINE;

    (void)id;
    (void)code;
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    leader = *source;
    if (PMIx_Group_join_nb("unloved", &leader, answer, NULL, 0, on_joined, &answered) != PMIX_SUCCESS) {
        wake(&answered, PMIX_SUCCESS);
    }
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

int main(void)
{
    pmix_status_t code = PMIX_GROUP_INVITED;
    pmix_proc_t members[3];

    start();
    CHECK_NUMBER(job_size, 3);
    for (pmix_rank_t rank = 0; rank < 3; rank++) {
        members[rank] = peer(rank);
    }
    handle_events(&code, 1, NULL, 0, on_invited);
    fence();
    if (me.rank == 0) {
        pmix_info_t *results = NULL, info;
        size_t nresults = 0;
        int seconds = 20;

        PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
        CHECK_ERROR(PMIx_Group_invite("unloved", members, 3, &info, 1, &results, &nresults));
    }
    fence();
    return finish();
}
