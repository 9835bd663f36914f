/* Process sets: two applications of a spawned job have names, and their
 * processes, their parent and its siblings can ask for the sets.
 * run: 1
 * nodes: 1
 * not: 3 (uses features of later versions)
 */
#include "query.h"
#include "spawn.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static size_t oceans, airs;

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
    CHECK_TYPE(name, PMIX_STRING);
    CHECK_TYPE(members, PMIX_DATA_ARRAY);
    pthread_mutex_lock(&lock);
    if (strcmp(name->data.string, "ocean") == 0) {
        oceans = members->data.darray->size;
    } else {
        CHECK_TEXT(name->data.string, "air");
        airs = members->data.darray->size;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

static void listen(void)
{
    pmix_status_t code = PMIX_PROCESS_SET_DEFINE;

    handle_events(&code, 1, NULL, 0, on_set);
}

static void wait_for_sets(void)
{
    AT("wait for the definition of the sets");
    pthread_mutex_lock(&lock);
    while (oceans == 0 || airs == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    CHECK_NUMBER(oceans, 2);
    CHECK_NUMBER(airs, 3);
    pthread_mutex_unlock(&lock);
}

static void check_queries(const char *job)
{
    pmix_info_t *results, qualifier;
    pmix_status_t status;
    const pmix_value_t *value;
    const pmix_proc_t *procs;
    size_t count;

    CHECK_OK(ask(PMIX_QUERY_NUM_PSETS, NULL, 0, &results, &count));
    value = value_among(results, count, PMIX_QUERY_NUM_PSETS);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_SIZE);
    CHECK_NUMBER(value->data.size, 2);
    PMIX_INFO_FREE(results, count);
    CHECK_OK(ask(PMIX_QUERY_PSET_NAMES, NULL, 0, &results, &count));
    value = value_among(results, count, PMIX_QUERY_PSET_NAMES);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_STRING);
    CHECK_TEXT(value->data.string, "ocean,air");
    PMIX_INFO_FREE(results, count);
    PMIX_INFO_LOAD(&qualifier, PMIX_PSET_NAME, "air", PMIX_STRING);
    CHECK_OK(ask(PMIX_QUERY_PSET_MEMBERSHIP, &qualifier, 1, &results, &count));
    value = value_among(results, count, PMIX_QUERY_PSET_MEMBERSHIP);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    CHECK_NUMBER(value->data.darray->type, PMIX_PROC);
    CHECK_NUMBER(value->data.darray->size, 3);
    procs = value->data.darray->array;
    for (size_t i = 0; i < 3; i++) {
        CHECK_NUMBER(procs[i].rank, 2 + i);
        CHECK_TEXT(procs[i].nspace, job);
    }
    PMIX_INFO_FREE(results, count);
    PMIX_INFO_LOAD(&qualifier, PMIX_PSET_NAME, "land", PMIX_STRING);
    status = ask(PMIX_QUERY_PSET_MEMBERSHIP, &qualifier, 1, &results, &count);
    CHECK_STATUS(status, PMIX_ERR_NOT_FOUND);
}

/* The name of the set of a rank, and that of its application. */
static void check_names(const pmix_proc_t *proc)
{
    const char *expected = proc->rank < 2 ? "ocean" : "air";
    char *name = text_of(proc, PMIX_PSET_NAMES);
    uint32_t app = (uint32_t)number_of(proc, PMIX_APPNUM);
    pmix_proc_t all = peer(PMIX_RANK_WILDCARD);
    pmix_info_t info[2];
    pmix_value_t *value = NULL;
    bool yes = true;

    CHECK_TEXT(name, expected);
    free(name);
    PMIX_INFO_LOAD(&info[0], PMIX_APP_INFO, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_APPNUM, &app, PMIX_UINT32);
    CHECK_OK(PMIx_Get(&all, PMIX_PSET_NAME, info, 2, &value));
    CHECK_TYPE(value, PMIX_STRING);
    CHECK_TEXT(value->data.string, expected);
    PMIX_VALUE_RELEASE(value);
}

/* Parent and children wait for each other: the sets end with their job. */
static void meet(const char *parents, const char *children)
{
    pmix_proc_t both[2];

    PMIX_LOAD_PROCID(&both[0], parents, PMIX_RANK_WILDCARD);
    PMIX_LOAD_PROCID(&both[1], children, PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
    CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
}

static int member(bool is_spawned)
{
    start();
    CHECK_NUMBER(job_size, 5);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t proc = peer(rank);

        check_names(&proc);
    }
    check_queries(me.nspace);
    listen();
    wait_for_sets();
    fence();
    if (is_spawned) {
        meet(parent_of_mine().nspace, me.nspace);
    }
    return finish();
}

int main(int argc, char **argv)
{
    pmix_app_t apps[2];
    pmix_info_t directive;
    pmix_nspace_t children;

    if (argc == 2) {
        return member(strcmp(argv[1], "spawned") == 0);
    }
    start();
    watch_job_ends();
    listen();
    self_app(&apps[0], 2, "spawned", NULL);
    self_app(&apps[1], 3, "spawned", NULL);
    for (size_t i = 0; i < 2; i++) {
        PMIX_INFO_CREATE(apps[i].info, 1);
        apps[i].ninfo = 1;
        PMIX_INFO_LOAD(&apps[i].info[0], PMIX_PSET_NAME, i == 0 ? "ocean" : "air", PMIX_STRING);
        PMIX_INFO_REQUIRED(&apps[i].info[0]);
    }
    map_by_node(&directive);
    CHECK_OK(PMIx_Spawn(&directive, 1, apps, 2, children));
    check_queries(children);
    wait_for_sets();
    meet(me.nspace, children);
    CHECK_NUMBER(wait_job_end(children).status, 0);
    return finish();
}
