/* preload PROGRAM FILES [WIDE] [DIRECTORY]
 * Spawns WIDE processes of PROGRAM, one on each node, with PROGRAM and the listed FILES copied to their nodes. They run in
 * DIRECTORY; without one, in the directory of the copies. Prints the status of the spawn, and waits for the end of the job. */
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PMIX_EVENT_JOB_END
#define PMIX_EVENT_JOB_END PMIX_ERR_JOB_TERMINATED
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int registered, ended;

static void set(int *flag)
{
    pthread_mutex_lock(&lock);
    *flag = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for(int *flag)
{
    pthread_mutex_lock(&lock);
    while (!*flag) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void on_registered(pmix_status_t status, size_t id, void *data)
{
    (void)status;
    (void)id;
    (void)data;
    set(&registered);
}

static void on_end(size_t id, pmix_status_t status, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                   pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *data)
{
    (void)id;
    (void)status;
    (void)source;
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    set(&ended);
    if (done != NULL) {
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, data);
    }
}

int main(int argc, char **argv)
{
    pmix_status_t code = PMIX_EVENT_JOB_END, status;
    char *child[] = {argv[1], NULL};
    pmix_nspace_t nspace;
    pmix_info_t *spread;
    pmix_proc_t me;
    pmix_app_t app;

    if (argc < 3 || PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS) {
        return 1;
    }
    PMIx_Register_event_handler(&code, 1, NULL, 0, on_end, on_registered, NULL);
    wait_for(&registered);
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(argv[1]);
    app.argv = child;
    app.maxprocs = argc > 3 ? atoi(argv[3]) : 1;
    app.cwd = argc > 4 ? strdup(argv[4]) : NULL;
    app.ninfo = argc > 4 ? 2 : 3;
    PMIX_INFO_CREATE(app.info, 3);
    PMIX_INFO_LOAD(&app.info[0], PMIX_PRELOAD_BIN, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&app.info[1], PMIX_PRELOAD_FILES, argv[2], PMIX_STRING);
    PMIX_INFO_LOAD(&app.info[2], PMIX_SET_SESSION_CWD, NULL, PMIX_BOOL);
    PMIX_INFO_CREATE(spread, 1);
    PMIX_INFO_LOAD(&spread[0], PMIX_MAPBY, "node", PMIX_STRING);
    status = PMIx_Spawn(spread, 1, &app, 1, nspace);
    printf("spawn: %d\n", status);
    fflush(stdout);
    if (status == PMIX_SUCCESS) {
        wait_for(&ended);
    }
    return PMIx_Finalize(NULL, 0) != PMIX_SUCCESS;
}
