/* For programs that run further processes of themselves with PMIx_Spawn. The
 * first argument is the role of the process: a parent has none. */
#ifndef SPAWN_H
#define SPAWN_H

#include "check.h"

/* The older name of the same event. */
#ifndef PMIX_EVENT_JOB_END
#define PMIX_EVENT_JOB_END PMIX_ERR_JOB_TERMINATED
#endif

/* The program itself as an application of `processes` processes. If
 * LD_LIBRARY_PATH selects the library, the children get the same value. */
MAYBE_UNUSED static void self_app(pmix_app_t *app, int processes, const char *role, const char *argument)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    const char *loader = getenv("LD_LIBRARY_PATH");

    CHECK(length > 0);
    path[length] = '\0';
    PMIX_APP_CONSTRUCT(app);
    app->cmd = strdup(path);
    app->maxprocs = processes;
    app->argv = calloc(4, sizeof(char *));
    app->argv[0] = strdup(path);
    app->argv[1] = strdup(role);
    app->argv[2] = argument == NULL ? NULL : strdup(argument);
    if (loader != NULL) {
        char text[8192];

        snprintf(text, sizeof(text), "LD_LIBRARY_PATH=%s", loader);
        app->env = calloc(3, sizeof(char *));
        app->env[0] = strdup(text);
    }
}

MAYBE_UNUSED static void spawn_self(int processes, const char *role, const char *argument, pmix_nspace_t child)
{
    pmix_app_t app;

    self_app(&app, processes, role, argument);
    CHECK_OK(PMIx_Spawn(NULL, 0, &app, 1, child));
    CHECK(strlen(child) > 0);
    CHECK(strcmp(child, me.nspace) != 0);
    PMIX_APP_DESTRUCT(&app);
}

/* A directive: one process on each node in turn. */
MAYBE_UNUSED static void map_by_node(pmix_info_t *info)
{
    PMIX_INFO_LOAD(info, PMIX_MAPBY, "node:OVERSUBSCRIBE", PMIX_STRING);
}

/* The process that spawned this one. */
MAYBE_UNUSED static pmix_proc_t parent_of_mine(void)
{
    pmix_value_t *value = NULL;
    pmix_proc_t parent;

    CHECK_OK(PMIx_Get(&me, PMIX_PARENT_ID, NULL, 0, &value));
    CHECK_TYPE(value, PMIX_PROC);
    parent = *value->data.proc;
    PMIX_VALUE_RELEASE(value);
    return parent;
}

/* The job-end events that this process has received. */
struct ended {
    pmix_nspace_t nspace;
    bool has_status;
    long long status;
};

static pthread_mutex_t ends_lock MAYBE_UNUSED = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ends_changed MAYBE_UNUSED = PTHREAD_COND_INITIALIZER;
static struct ended ends[256] MAYBE_UNUSED;
static size_t ends_seen MAYBE_UNUSED;

MAYBE_UNUSED static void on_job_end(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[],
                                    size_t count, pmix_info_t *results, size_t nresults,
                                    pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *affected = value_among(info, count, PMIX_EVENT_AFFECTED_PROC);
    const pmix_value_t *status = value_among(info, count, PMIX_JOB_TERM_STATUS);
    const char *nspace = source->nspace;

    (void)id;
    (void)code;
    (void)results;
    (void)nresults;
    if (affected != NULL && affected->type == PMIX_PROC) {
        nspace = affected->data.proc->nspace;
    }
    pthread_mutex_lock(&ends_lock);
    if (ends_seen < sizeof(ends) / sizeof(ends[0])) {
        PMIX_LOAD_NSPACE(ends[ends_seen].nspace, nspace);
        ends[ends_seen].has_status = status != NULL;
        ends[ends_seen].status = status == NULL ? 0 : number_in(status);
        ends_seen++;
    }
    pthread_cond_broadcast(&ends_changed);
    pthread_mutex_unlock(&ends_lock);
    if (done != NULL) {
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
    }
}

/* Call this before the spawn. */
MAYBE_UNUSED static size_t watch_job_ends(void)
{
    pmix_status_t code = PMIX_EVENT_JOB_END;

    return handle_events(&code, 1, NULL, 0, on_job_end);
}

/* Waits until the job has ended; returns the event of its end. */
MAYBE_UNUSED static struct ended wait_job_end(const char *nspace)
{
    struct ended found;

    AT("wait for the end of a spawned job");
    pthread_mutex_lock(&ends_lock);
    for (;;) {
        for (size_t i = 0; i < ends_seen; i++) {
            if (strncmp(ends[i].nspace, nspace, PMIX_MAX_NSLEN) == 0) {
                found = ends[i];
                pthread_mutex_unlock(&ends_lock);
                return found;
            }
        }
        pthread_cond_wait(&ends_changed, &ends_lock);
    }
}

#endif
