/* The death of a rank raises one event, which names the rank, in each process
 * that has registered for it. The job continues.
 * run: 3 -- keep-going
 * nodes: 3 -- keep-going
 * not: 3 (uses features of later versions)
 */
#include "event.h"

static struct waiter told = WAITER;

static void on_death(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *who = value_among(info, count, PMIX_EVENT_AFFECTED_PROC);
    pmix_proc_t dead = peer(job_size - 1);

    (void)id;
    (void)results;
    (void)nresults;
    (void)code;
    if ((who != NULL && who->type == PMIX_PROC && same_proc(who->data.proc, &dead)) || same_proc(source, &dead)) {
        wake(&told, PMIX_SUCCESS);
    }
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

int main(void)
{
    pmix_status_t codes[] = {PMIX_ERR_PROC_ABORTED, PMIX_ERR_PROC_ABORTED_BY_SIG, PMIX_ERR_PROC_TERM_WO_SYNC,
                             PMIX_EVENT_PROC_TERMINATED};

    start();
    need_ranks(3);
    handle_events(codes, 4, NULL, 0, on_death);
    fence();
    if (me.rank == job_size - 1) {
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(wait_for(&told, 1));
    return finish();
}
