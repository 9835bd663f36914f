/* A tool that asks a server, logs, aborts and hears of deaths. Its arguments
 * are orders, after the pid of the launcher:
 *
 *   ask PID ORDER...
 *
 *   support | status | memory | queue | servers | facts | sets | log | deaths | abort
 */
#include "waits.h"

#include <pmix_tool.h>

static char job[PMIX_MAX_NSLEN + 1];
static unsigned deaths;

static pmix_status_t ask(const char *key, pmix_info_t *qualifiers, size_t nqualifiers, pmix_info_t **results,
                         size_t *count)
{
    pmix_query_t query;
    pmix_status_t status;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, key);
    CHECK_OK(status);
    query.qualifiers = qualifiers;
    query.nqual = nqualifiers;
    *results = NULL;
    *count = 0;
    AT(key);
    status = PMIx_Query_info(&query, 1, results, count);
    query.qualifiers = NULL;
    query.nqual = 0;
    PMIX_QUERY_DESTRUCT(&query);
    return status;
}

/* Asks for a key that has one result. */
static const pmix_value_t *one(const char *key, pmix_info_t *qualifiers, size_t nqualifiers)
{
    pmix_info_t *results;
    size_t count;
    const pmix_value_t *value;

    CHECK_OK(ask(key, qualifiers, nqualifiers, &results, &count));
    value = value_among(results, count, key);
    if (value == NULL) {
        FAIL("%s has no result", key);
    }
    return value;
}

static void list(const char *key, const char *member)
{
    const pmix_value_t *value = one(key, NULL, 0);

    CHECK_TYPE(value, PMIX_STRING);
    if (strstr(value->data.string, member) == NULL) {
        FAIL("%s: expected %s in \"%s\"", key, member, value->data.string);
    }
}

static void support(void)
{
    pmix_info_t qualifier, *functions;
    const pmix_value_t *value;
    pmix_regattr_t *attributes;

    list(PMIX_QUERY_SUPPORTED_KEYS, PMIX_QUERY_JOB_STATUS);
    list(PMIX_QUERY_SPAWN_SUPPORT, PMIX_COSPAWN_APP);
    list(PMIX_QUERY_DEBUG_SUPPORT, PMIX_DEBUG_STOP_ON_EXEC);
    PMIX_INFO_LOAD(&qualifier, PMIX_HOST_ATTRIBUTES, "PMIx_Spawn", PMIX_STRING);
    value = one(PMIX_QUERY_ATTRIBUTE_SUPPORT, &qualifier, 1);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    functions = value->data.darray->array;
    /* Some libraries ask for all functions, whatever they are asked for. */
    value = value_among(functions, value->data.darray->size, "PMIx_Spawn");
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    CHECK_NUMBER(value->data.darray->type, PMIX_REGATTR);
    attributes = value->data.darray->array;
    CHECK_NUMBER(attributes[0].type, PMIX_STRING);
    CHECK(attributes[0].name != NULL && strncmp(attributes[0].string, "pmix.", 5) == 0);
    CHECK(attributes[0].description != NULL && attributes[0].description[0] != NULL);
    printf("support is known\n");
}

static void of_job(pmix_info_t *qualifier)
{
    PMIX_INFO_LOAD(qualifier, PMIX_NSPACE, job, PMIX_STRING);
}

static void status(void)
{
    pmix_info_t qualifier;
    const pmix_value_t *value;

    of_job(&qualifier);
    value = one(PMIX_QUERY_JOB_STATUS, &qualifier, 1);
    CHECK_TYPE(value, PMIX_STATUS);
    printf("status %d\n", value->data.status);
}

static void memory(void)
{
    pmix_info_t qualifiers[2], *nodes, *facts;
    const pmix_value_t *value;
    bool yes = true;

    of_job(&qualifiers[0]);
    value = one(PMIX_QUERY_MEMORY_USAGE, qualifiers, 1);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    printf("memory of %zu processes\n", value->data.darray->size);
    PMIX_INFO_LOAD(&qualifiers[1], PMIX_QUERY_REPORT_AVG, &yes, PMIX_BOOL);
    value = one(PMIX_QUERY_MEMORY_USAGE, qualifiers, 2);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    nodes = value->data.darray->array;
    for (size_t node = 0; node < value->data.darray->size; node++) {
        const pmix_value_t *host, *average, *daemon;

        CHECK_TEXT(nodes[node].key, PMIX_NODE_INFO_ARRAY);
        facts = nodes[node].value.data.darray->array;
        host = value_among(facts, nodes[node].value.data.darray->size, PMIX_HOSTNAME);
        average = value_among(facts, nodes[node].value.data.darray->size, PMIX_CLIENT_AVG_MEMORY);
        daemon = value_among(facts, nodes[node].value.data.darray->size, PMIX_DAEMON_MEMORY);
        CHECK(daemon != NULL && daemon->type == PMIX_FLOAT && daemon->data.fval > 0.1F);
        CHECK(host != NULL && average != NULL && average->type == PMIX_FLOAT && average->data.fval > 0.1F);
        printf("memory on %s\n", host->data.string);
    }
}

/* On a machine there is a queue; elsewhere, nothing is found. */
static void queue(void)
{
    pmix_info_t *results, *queues;
    size_t count;
    const pmix_value_t *value;
    pmix_status_t found = ask(PMIX_QUERY_QUEUE_LIST, NULL, 0, &results, &count);

    if (found != PMIX_SUCCESS) {
        CHECK_STATUS(found, PMIX_ERR_NOT_FOUND);
        printf("no queue\n");
        return;
    }
    value = value_among(results, count, PMIX_QUERY_QUEUE_LIST);
    CHECK(value != NULL && value->type == PMIX_STRING);
    printf("queue %s\n", value->data.string);
    value = one(PMIX_QUERY_QUEUE_STATUS, NULL, 0);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    queues = value->data.darray->array;
    printf("%s: %s\n", queues[0].key, queues[0].value.data.string);
}

/* The library finds them by their files. */
static void servers(void)
{
    pmix_info_t *results;
    size_t count;

    CHECK_OK(ask(PMIX_QUERY_AVAIL_SERVERS, NULL, 0, &results, &count));
    printf("%s servers\n", count > 0 ? "some" : "no");
}

/* Facts of a rank, for a process that belongs to no job. */
static void facts(void)
{
    pmix_proc_t first;
    pmix_value_t *value = NULL;

    PMIX_LOAD_PROCID(&first, job, 1);
    CHECK_OK(PMIx_Get(&first, PMIX_APPNUM, NULL, 0, &value));
    CHECK_TYPE(value, PMIX_UINT32);
    printf("app %u\n", value->data.uint32);
    PMIX_VALUE_RELEASE(value);
    CHECK_OK(PMIx_Get(&first, PMIX_LOCAL_RANK, NULL, 0, &value));
    CHECK_TYPE(value, PMIX_UINT16);
    printf("local rank %u\n", value->data.uint16);
    PMIX_VALUE_RELEASE(value);
    PMIX_LOAD_PROCID(&first, job, PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Get(&first, PMIX_JOB_SIZE, NULL, 0, &value));
    CHECK_TYPE(value, PMIX_UINT32);
    printf("size %u\n", value->data.uint32);
    PMIX_VALUE_RELEASE(value);
}

/* The only process set, and its members. */
static void sets(void)
{
    const pmix_value_t *names = one(PMIX_QUERY_PSET_NAMES, NULL, 0), *members;
    pmix_info_t qualifier;
    const pmix_proc_t *procs;

    CHECK_TYPE(names, PMIX_STRING);
    CHECK_NUMBER(one(PMIX_QUERY_NUM_PSETS, NULL, 0)->data.size, 1);
    PMIX_INFO_LOAD(&qualifier, PMIX_PSET_NAME, names->data.string, PMIX_STRING);
    members = one(PMIX_QUERY_PSET_MEMBERSHIP, &qualifier, 1);
    CHECK_TYPE(members, PMIX_DATA_ARRAY);
    procs = members->data.darray->array;
    CHECK_TEXT(procs[0].nspace, job);
    printf("set %s of %zu\n", names->data.string, members->data.darray->size);
}

static void say(void)
{
    pmix_info_t data[2];
    pmix_status_t logged;

    PMIX_INFO_LOAD(&data[0], PMIX_LOG_STDERR, "logged to stderr\n", PMIX_STRING);
    PMIX_INFO_LOAD(&data[1], PMIX_LOG_STDOUT, "logged to stdout\n", PMIX_STRING);
    logged = PMIx_Log(data, 2, NULL, 0);
    if (logged != PMIX_OPERATION_SUCCEEDED) {
        CHECK_OK(logged);
    }
}

static void on_death(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    (void)id;
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    pthread_mutex_lock(&lock);
    printf("rank %u died: %d\n", (unsigned)source->rank, code);
    deaths++;
    tell();
    handled(done, cbdata);
}

static void wait_for_deaths(unsigned number)
{
    WAIT_UNTIL("the deaths of processes", deaths >= number);
}

/* Aborts both ranks, and waits for their deaths. */
static void abort_ranks(void)
{
    pmix_proc_t all;

    PMIX_LOAD_PROCID(&all, job, PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Abort(7, "a tool ends this", &all, 1));
    wait_for_deaths(2);
}

static void act(const char *order)
{
    pmix_status_t codes[] = {PMIX_ERR_PROC_ABORTED_BY_SIG, PMIX_EVENT_PROC_TERMINATED};

    if (strcmp(order, "support") == 0) {
        support();
    } else if (strcmp(order, "status") == 0) {
        status();
    } else if (strcmp(order, "memory") == 0) {
        memory();
    } else if (strcmp(order, "queue") == 0) {
        queue();
    } else if (strcmp(order, "servers") == 0) {
        servers();
    } else if (strcmp(order, "facts") == 0) {
        facts();
    } else if (strcmp(order, "sets") == 0) {
        sets();
    } else if (strcmp(order, "log") == 0) {
        say();
    } else if (strcmp(order, "deaths") == 0) {
        handle_events(codes, 2, NULL, 0, on_death);
    } else if (strcmp(order, "abort") == 0) {
        abort_ranks();
    } else {
        FAIL("no order: %s", order);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pmix_info_t infos[1];
    const pmix_value_t *names;
    pid_t pid;

    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    CHECK(argc > 2);
    pid = atoi(argv[1]);
    PMIX_INFO_LOAD(&infos[0], PMIX_SERVER_PIDINFO, &pid, PMIX_PID);
    CHECK_OK(PMIx_tool_init(&me, infos, 1));
    names = one(PMIX_QUERY_NAMESPACES, NULL, 0);
    CHECK_TYPE(names, PMIX_STRING);
    snprintf(job, sizeof(job), "%.*s", (int)strcspn(names->data.string, ","), names->data.string);
    for (int next = 2; next < argc; next++) {
        act(argv[next]);
    }
    CHECK_OK(PMIx_tool_finalize());
    printf("finalized\n");
    return 0;
}
