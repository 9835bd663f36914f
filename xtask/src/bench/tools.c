/* The tool of `cargo xtask bench tools`, the same for every server, which it finds by process number.
 *
 *   hold PID COUNT         spawns processes that sleep, prints `held`, and kills them at the end of its stdin
 *   table PID              prints `table` and the number of rows of the table with the most processes
 *   stop PID COUNT         spawns processes that stop in init; prints the microseconds from the call to READY_FOR_DEBUG
 *   daemons PID COUNT DIR  spawns a daemon on each node of the job; prints the microseconds from the call until the last of COUNT
 *                          daemons runs
 *
 * It is also what it spawns:
 *
 *   rank                   initializes and finalizes
 *   daemon DIR             writes the clock into a file of DIR
 */
#include <limits.h>
#include <pmix.h>
#include <pmix_tool.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define ROWS_WAIT_US 1000

static pmix_proc_t me;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
/* When the event came, by what it says. */
static double ready_at;
static unsigned ends;

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static void must(pmix_status_t status, const char *what)
{
    if (status != PMIX_SUCCESS && status != PMIX_OPERATION_SUCCEEDED) {
        fprintf(stderr, "%s: %s (%d)\n", what, PMIx_Error_string(status), status);
        exit(1);
    }
}

static void on_event(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    (void)id;
    (void)source;
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    pthread_mutex_lock(&lock);
    if (code == PMIX_READY_FOR_DEBUG) {
        ready_at = now();
    } else {
        ends++;
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    if (done != NULL) {
        done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
    }
}

static void registered(pmix_status_t status, size_t id, void *cbdata)
{
    (void)id;
    (void)cbdata;
    must(status, "register");
    pthread_mutex_lock(&lock);
    *(bool *)cbdata = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void hear_of(pmix_status_t code)
{
    bool is_done = false;

    PMIx_Register_event_handler(&code, 1, NULL, 0, on_event, registered, &is_done);
    pthread_mutex_lock(&lock);
    while (!is_done) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void connect_to(const char *number)
{
    pmix_info_t info;
    pid_t pid = atoi(number);

    PMIX_INFO_LOAD(&info, PMIX_SERVER_PIDINFO, &pid, PMIX_PID);
    must(PMIx_tool_init(&me, &info, 1), "connect");
}

/* Asks for a key, about a job if there is one. */
static pmix_status_t ask(const char *key, const char *job, pmix_info_t **results, size_t *count)
{
    pmix_query_t query;
    pmix_status_t status;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, key);
    if (job != NULL) {
        PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
        PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, job, PMIX_STRING);
    }
    status = PMIx_Query_info(&query, 1, results, count);
    PMIX_QUERY_DESTRUCT(&query);
    return status;
}

/* Returns the number of started processes of a job, 0 if it has no table. */
static size_t rows_of(const char *job)
{
    pmix_info_t *results = NULL;
    size_t count = 0, rows = 0;

    if (ask(PMIX_QUERY_PROC_TABLE, job, &results, &count) != PMIX_SUCCESS) {
        return 0;
    }
    if (count > 0 && results[0].value.type == PMIX_DATA_ARRAY && results[0].value.data.darray != NULL) {
        const pmix_proc_info_t *table = results[0].value.data.darray->array;

        for (size_t row = 0; row < results[0].value.data.darray->size; row++) {
            rows += table[row].pid > 0;
        }
    }
    PMIX_INFO_FREE(results, count);
    return rows;
}

/* Finds the job with the most processes. */
static size_t find_job(char *job, size_t size)
{
    pmix_info_t *results = NULL;
    size_t count = 0, most = 0;
    char *names, *rest = NULL;

    must(ask(PMIX_QUERY_NAMESPACES, NULL, &results, &count), "query");
    if (count == 0 || results[0].value.type != PMIX_STRING || results[0].value.data.string == NULL) {
        return 0;
    }
    names = strdup(results[0].value.data.string);
    for (char *name = strtok_r(names, ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        size_t rows = rows_of(name);

        if (rows > most) {
            most = rows;
            snprintf(job, size, "%s", name);
        }
    }
    free(names);
    PMIX_INFO_FREE(results, count);
    return most;
}

static void spawn(pmix_info_t *infos, size_t count, const char *program, const char *const *words, int processes,
                  pmix_nspace_t job)
{
    pmix_app_t app;
    char text[2 * PATH_MAX];

    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(program);
    app.maxprocs = processes;
    app.argv = calloc(4, sizeof(char *));
    for (size_t word = 0; words[word] != NULL; word++) {
        app.argv[word] = strdup(words[word]);
    }
    app.cwd = strdup("/");
    snprintf(text, sizeof(text), "LD_LIBRARY_PATH=%s", getenv("LD_LIBRARY_PATH"));
    app.env = calloc(2, sizeof(char *));
    app.env[0] = strdup(text);
    must(PMIx_Spawn(infos, count, &app, 1, job), "spawn");
    PMIX_APP_DESTRUCT(&app);
}

static const char *own_path(void)
{
    static char path[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

    if (length < 0) {
        perror("readlink");
        exit(1);
    }
    path[length] = '\0';
    return path;
}

/* Ends the processes of a job, or lets them go. */
static void tell(const char *job, bool is_release)
{
    pmix_proc_t all;
    pmix_info_t infos[2];
    bool yes = true;

    PMIX_LOAD_PROCID(&all, job, PMIX_RANK_WILDCARD);
    if (is_release) {
        PMIX_INFO_LOAD(&infos[0], PMIX_EVENT_CUSTOM_RANGE, &all, PMIX_PROC);
        PMIX_INFO_LOAD(&infos[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
        must(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL), "release");
    } else {
        PMIX_INFO_LOAD(&infos[0], PMIX_JOB_CTRL_KILL, &yes, PMIX_BOOL);
        must(PMIx_Job_control(&all, 1, infos, 1, NULL, NULL), "kill");
    }
}

static void await_ends(unsigned wanted)
{
    pthread_mutex_lock(&lock);
    while (ends < wanted) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

static void hold(int processes)
{
    static const char *const words[] = {"sleep", "1000", NULL};
    pmix_info_t info;
    pmix_nspace_t job;
    char byte;

    /* PRRTE starts no more processes than it can bind. */
    PMIX_INFO_LOAD(&info, PMIX_BINDTO, "none", PMIX_STRING);
    spawn(&info, 1, "/bin/sleep", words, processes, job);
    puts("held");
    fflush(stdout);
    (void)!read(0, &byte, 1);
    tell(job, false);
}

static void stop(int processes)
{
    const char *const words[] = {own_path(), "rank", NULL};
    pmix_info_t infos[3];
    pmix_nspace_t job;
    bool yes = true;
    double begin;

    hear_of(PMIX_READY_FOR_DEBUG);
    hear_of(PMIX_EVENT_JOB_END);
    PMIX_INFO_LOAD(&infos[0], PMIX_DEBUG_STOP_IN_INIT, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_NOTIFY_COMPLETION, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[2], PMIX_BINDTO, "none", PMIX_STRING);
    begin = now();
    spawn(infos, 3, own_path(), words, processes, job);
    pthread_mutex_lock(&lock);
    while (ready_at < begin) {
        pthread_cond_wait(&changed, &lock);
    }
    ends = 0;
    pthread_mutex_unlock(&lock);
    printf("%.0f\n", ready_at - begin);
    tell(job, true);
    await_ends(1);
}

static void daemons(size_t nodes, const char *directory)
{
    const char *const words[] = {own_path(), "daemon", directory, NULL};
    pmix_info_t infos[4];
    pmix_nspace_t job, spawned;
    pmix_proc_t target;
    bool yes = true;
    double begin, last = 0;

    while (find_job(job, sizeof(job)) < nodes) {
        usleep(ROWS_WAIT_US);
    }
    hear_of(PMIX_EVENT_JOB_END);
    PMIX_LOAD_PROCID(&target, job, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&infos[0], PMIX_MAPBY, "ppr:1:node", PMIX_STRING);
    PMIX_INFO_LOAD(&infos[1], PMIX_DEBUGGER_DAEMONS, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[2], PMIX_DEBUG_TARGET, &target, PMIX_PROC);
    PMIX_INFO_LOAD(&infos[3], PMIX_NOTIFY_COMPLETION, &yes, PMIX_BOOL);
    begin = now();
    spawn(infos, 4, own_path(), words, 1, spawned);
    await_ends(1);
    for (size_t daemon = 0; daemon < nodes; daemon++) {
        char path[2 * PATH_MAX];
        double at = 0;
        FILE *file;

        snprintf(path, sizeof(path), "%s/%zu", directory, daemon);
        file = fopen(path, "r");
        if (file == NULL || fscanf(file, "%lf", &at) != 1 || at < begin) {
            fprintf(stderr, "daemon %zu has not run\n", daemon);
            exit(1);
        }
        fclose(file);
        last = at > last ? at : last;
    }
    printf("%.0f\n", last - begin);
}

static int as_daemon(double begin, const char *directory)
{
    char path[2 * PATH_MAX];
    FILE *file;

    snprintf(path, sizeof(path), "%s/%s", directory, getenv("PMIX_RANK"));
    file = fopen(path, "w");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    fprintf(file, "%f\n", begin);
    return fclose(file) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    double begin = now();
    const char *mode = argc > 1 ? argv[1] : "";

    if (strcmp(mode, "daemon") == 0 && argc == 3) {
        return as_daemon(begin, argv[2]);
    }
    if (strcmp(mode, "rank") == 0) {
        must(PMIx_Init(&me, NULL, 0), "init");
        must(PMIx_Finalize(NULL, 0), "finalize");
        return 0;
    }
    if (argc < 3) {
        fprintf(stderr, "see the first lines of tools.c\n");
        return 2;
    }
    connect_to(argv[2]);
    if (strcmp(mode, "table") == 0) {
        char job[PMIX_MAX_NSLEN + 1];

        printf("table %zu\n", find_job(job, sizeof(job)));
        fflush(stdout);
    } else if (strcmp(mode, "hold") == 0 && argc == 4) {
        hold(atoi(argv[3]));
    } else if (strcmp(mode, "stop") == 0 && argc == 4) {
        stop(atoi(argv[3]));
    } else if (strcmp(mode, "daemons") == 0 && argc == 5) {
        daemons(strtoul(argv[3], NULL, 10), argv[4]);
    } else {
        fprintf(stderr, "see the first lines of tools.c\n");
        return 2;
    }
    fflush(stdout);
    must(PMIx_tool_finalize(), "finalize");
    return 0;
}
