/* A rank defines a process set of some ranks by job control: all ranks get the
 * event, and can ask for the set.
 * run: 3
 * nodes: 3
 * not: 3 (uses features of later versions)
 */
#include "query.h"

/* Headers before 5.0 do not have it. */
#ifndef PMIX_JOB_CTRL_DEFINE_PSET
#define PMIX_JOB_CTRL_DEFINE_PSET "pmix.jctrl.defpset"
#endif

static struct waiter heard = WAITER;

static void on_set(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                   pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *name = value_among(info, count, PMIX_PSET_NAME);
    const pmix_value_t *members = value_among(info, count, PMIX_PSET_MEMBERS);

    (void)id;
    (void)code;
    (void)source;
    (void)results;
    (void)nresults;
    CHECK(name != NULL && members != NULL);
    CHECK_TEXT(name->data.string, "edges");
    CHECK_NUMBER(members->data.darray->size, 2);
    wake(&heard, PMIX_SUCCESS);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

static pmix_status_t define(const char *name, pmix_proc_t *procs, size_t count)
{
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;

    PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_DEFINE_PSET, name, PMIX_STRING);
    PMIX_INFO_REQUIRED(&info);
    AT("definition of a set");
    return PMIx_Job_control(procs, count, &info, 1, &results, &nresults);
}

int main(void)
{
    pmix_status_t code = PMIX_PROCESS_SET_DEFINE;
    pmix_proc_t edges[2], nobody;
    pmix_info_t *results, qualifier;
    const pmix_value_t *value;
    const pmix_proc_t *procs;
    size_t count;

    start();
    need_ranks(3);
    handle_events(&code, 1, NULL, 0, on_set);
    fence();
    edges[0] = peer(0);
    edges[1] = peer(2);
    nobody = peer(3);
    if (me.rank == 1) {
        CHECK_OK(define("edges", edges, 2));
        CHECK_ERROR(define("edges", edges, 1));
        CHECK_ERROR(define("a,b", edges, 2));
        CHECK_ERROR(define("none", &nobody, 1));
    }
    CHECK_OK(wait_for(&heard, 1));
    fence();
    CHECK_OK(ask(PMIX_QUERY_PSET_NAMES, NULL, 0, &results, &count));
    value = value_among(results, count, PMIX_QUERY_PSET_NAMES);
    CHECK(value != NULL);
    CHECK_TEXT(value->data.string, "edges");
    PMIX_INFO_FREE(results, count);
    PMIX_INFO_LOAD(&qualifier, PMIX_PSET_NAME, "edges", PMIX_STRING);
    CHECK_OK(ask(PMIX_QUERY_PSET_MEMBERSHIP, &qualifier, 1, &results, &count));
    value = value_among(results, count, PMIX_QUERY_PSET_MEMBERSHIP);
    CHECK(value != NULL);
    CHECK_NUMBER(value->data.darray->size, 2);
    procs = value->data.darray->array;
    CHECK_NUMBER(procs[0].rank, 0);
    CHECK_NUMBER(procs[1].rank, 2);
    PMIX_INFO_FREE(results, count);
    fence();
    return finish();
}
