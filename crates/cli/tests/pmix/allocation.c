/* Requests for more resources. Without a scheduler they are refused explicitly
 * and promptly; on a machine its queue answers them.
 * run: 1
 */
#include "spawn.h"

#include <sys/stat.h>

static char id[256];

static pmix_info_t number(const char *key, uint64_t value)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, key, &value, PMIX_UINT64);
    return info;
}

static pmix_info_t seconds(uint32_t value)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_ALLOC_TIME, &value, PMIX_UINT32);
    return info;
}

static pmix_info_t named(const char *name)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, PMIX_ALLOC_ID, name, PMIX_STRING);
    return info;
}

static pmix_status_t ask(pmix_alloc_directive_t directive, pmix_info_t first, pmix_info_t second)
{
    pmix_info_t infos[2] = {first, second};
    pmix_info_t *results = NULL;
    size_t nresults = 0;

    return PMIx_Allocation_request(directive, infos, 2, &results, &nresults);
}

/* Asks, and checks the number of CPUs in the answer. The name of the allocation is in `id`. */
static void granted(pmix_alloc_directive_t directive, pmix_info_t first, pmix_info_t second, long long cpus)
{
    pmix_info_t infos[2] = {first, second};
    pmix_info_t *results = NULL;
    size_t nresults = 0;
    const pmix_value_t *value;

    CHECK_OK(PMIx_Allocation_request(directive, infos, 2, &results, &nresults));
    value = value_among(results, nresults, PMIX_ALLOC_ID);
    CHECK(value != NULL && value->type == PMIX_STRING);
    snprintf(id, sizeof(id), "%s", value->data.string);
    value = value_among(results, nresults, PMIX_ALLOC_NUM_CPUS);
    CHECK(value != NULL);
    CHECK_NUMBER(number_in(value), cpus);
    value = value_among(results, nresults, PMIX_ALLOC_NODE_LIST);
    CHECK(value != NULL && value->type == PMIX_STRING);
    PMIX_INFO_FREE(results, nresults);
}

/* Spawns a process with this attribute. */
static void spawn_with(pmix_info_t info, const char *role, pmix_nspace_t child)
{
    pmix_app_t app;

    self_app(&app, 1, role, NULL);
    CHECK_OK(PMIx_Spawn(&info, 1, &app, 1, child));
    PMIX_APP_DESTRUCT(&app);
}

static void without_scheduler(void)
{
    pmix_info_t nodes = number(PMIX_ALLOC_NUM_NODES, 4);

    CHECK_STATUS(ask(PMIX_ALLOC_NEW, nodes, seconds(5)), PMIX_ERR_NOT_SUPPORTED);
    CHECK_STATUS(ask(PMIX_ALLOC_EXTEND, nodes, named("1")), PMIX_ERR_NOT_SUPPORTED);
    CHECK_STATUS(ask(PMIX_ALLOC_RELEASE, named("1"), named("1")), PMIX_ERR_NOT_SUPPORTED);
}

/* The machine has four slots, and this process has one of them. */
static void on_machine(void)
{
    pmix_info_t one = number(PMIX_ALLOC_NUM_CPUS, 1);
    pmix_info_t two = number(PMIX_ALLOC_NUM_CPUS, 2);
    pmix_info_t strange;
    pmix_nspace_t child;
    bool yes = true;

    watch_job_ends();
    granted(PMIX_ALLOC_NEW, two, seconds(1000), 2);
    granted(PMIX_ALLOC_EXTEND, named(id), one, 3);
    granted(PMIX_ALLOC_EXTEND, named(id), seconds(100), 3);
    CHECK_STATUS(ask(PMIX_ALLOC_EXTEND, named(id), one), PMIX_ERR_RESOURCE_BUSY);
    granted(PMIX_ALLOC_REAQUIRE, named(id), named(id), 3);
    spawn_with(named(id), "inside", child);
    CHECK_STATUS(ask(PMIX_ALLOC_RELEASE, named(id), named(id)), PMIX_ERR_RESOURCE_BUSY);
    CHECK(mkdir("go", 0700) == 0);
    CHECK_NUMBER(wait_job_end(child).status, 0);
    granted(PMIX_ALLOC_RELEASE, named(id), two, 1);
    CHECK_OK(ask(PMIX_ALLOC_RELEASE, named(id), named(id)));
    CHECK_STATUS(ask(PMIX_ALLOC_RELEASE, named(id), named(id)), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(ask(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_CPUS, 4), seconds(5)), PMIX_ERR_OUT_OF_RESOURCE);
    PMIX_INFO_LOAD(&strange, "pmix.of.tomorrow", &yes, PMIX_BOOL);
    PMIX_INFO_REQUIRED(&strange);
    CHECK_STATUS(ask(PMIX_ALLOC_NEW, one, strange), PMIX_ERR_NOT_SUPPORTED);
    /* A spawn request asks for its own allocation. */
    spawn_with(seconds(1000), "inside", child);
    CHECK_NUMBER(wait_job_end(child).status, 0);
}

/* Has an allocation until it is killed, or until the allocation is over. */
static void hold(void)
{
    granted(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_CPUS, 2), seconds(1000), 2);
    printf("has %s\n", id);
    fflush(stdout);
    while (ask(PMIX_ALLOC_REAQUIRE, named(id), named(id)) == PMIX_SUCCESS) {
        usleep(10000);
    }
    printf("over\n");
}

/* Prints what Slurm has granted. */
static void show(pmix_alloc_directive_t directive, pmix_info_t first, pmix_info_t second)
{
    pmix_info_t infos[2] = {first, second};
    pmix_info_t *results = NULL;
    size_t nresults = 0;
    const pmix_value_t *list, *time;

    CHECK_OK(PMIx_Allocation_request(directive, infos, 2, &results, &nresults));
    list = value_among(results, nresults, PMIX_ALLOC_ID);
    CHECK(list != NULL && list->type == PMIX_STRING);
    snprintf(id, sizeof(id), "%s", list->data.string);
    list = value_among(results, nresults, PMIX_ALLOC_NODE_LIST);
    time = value_among(results, nresults, PMIX_ALLOC_TIME);
    CHECK(list != NULL && list->type == PMIX_STRING && time != NULL);
    printf("has %s on %s for %lld s\n", id, list->data.string, (long long)number_in(time));
    fflush(stdout);
    PMIX_INFO_FREE(results, nresults);
}

static pmix_info_t text(const char *key, const char *value)
{
    pmix_info_t info;

    PMIX_INFO_LOAD(&info, key, value, PMIX_STRING);
    return info;
}

/* Inside of an allocation of Slurm; its user may extend times. */
static void in_slurm(void)
{
    pmix_info_t one = number(PMIX_ALLOC_NUM_CPUS, 1);
    pmix_info_t nodes = number(PMIX_ALLOC_NUM_NODES, 2);
    pmix_info_t timeout;
    int patience = 1;

    PMIX_INFO_LOAD(&timeout, PMIX_TIMEOUT, &patience, PMIX_INT);
    show(PMIX_ALLOC_NEW, nodes, seconds(90));
    show(PMIX_ALLOC_EXTEND, named(id), seconds(60));
    granted(PMIX_ALLOC_REAQUIRE, named(id), named(id), 2);
    CHECK_STATUS(ask(PMIX_ALLOC_EXTEND, named(id), one), PMIX_ERR_NOT_SUPPORTED);
    CHECK_STATUS(ask(PMIX_ALLOC_RELEASE, named(id), one), PMIX_ERR_NOT_SUPPORTED);
    CHECK_STATUS(ask(PMIX_ALLOC_NEW, one, text(PMIX_ALLOC_QUEUE, "nope")), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(ask(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_NODES, 999), timeout), PMIX_ERR_TIMEOUT);
    CHECK_STATUS(ask(PMIX_ALLOC_REAQUIRE, named("slurm:4000000"), one), PMIX_ERR_NOT_FOUND);
    CHECK_OK(ask(PMIX_ALLOC_RELEASE, named(id), named(id)));
    CHECK_STATUS(ask(PMIX_ALLOC_RELEASE, named(id), named(id)), PMIX_ERR_NOT_FOUND);
}

/* Spawns processes on any node with this attribute, and waits until they have ended. */
static void spawn_there(pmix_info_t info, int processes)
{
    pmix_nspace_t child;
    pmix_app_t app;

    self_app(&app, processes, "there", NULL);
    app.cwd = strdup("/");
    CHECK_OK(PMIx_Spawn(&info, 1, &app, 1, child));
    PMIX_APP_DESTRUCT(&app);
    CHECK_NUMBER(wait_job_end(child).status, 0);
}

/* Spawns into an allocation of Slurm, and lets spawn requests bring some along. */
static void spawn_in_slurm(void)
{
    watch_job_ends();
    show(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_NODES, 2), seconds(600));
    spawn_there(named(id), 2);
    spawn_there(named(id), 2);
    spawn_there(number(PMIX_ALLOC_NUM_NODES, 1), 1);
    CHECK_OK(ask(PMIX_ALLOC_RELEASE, named(id), named(id)));
    spawn_there(seconds(600), 3);
}

/* Spawns into an allocation of Slurm that somebody cancels. */
static void lose_in_slurm(void)
{
    pmix_nspace_t child;
    pmix_info_t where;
    pmix_app_t app;

    watch_job_ends();
    show(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_NODES, 2), seconds(600));
    where = named(id);
    self_app(&app, 2, "sleep", NULL);
    app.cwd = strdup("/");
    CHECK_OK(PMIx_Spawn(&where, 1, &app, 1, child));
    printf("spawned\n");
    fflush(stdout);
    CHECK(wait_job_end(child).status != 0);
    CHECK_STATUS(ask(PMIX_ALLOC_REAQUIRE, where, where), PMIX_ERR_NOT_FOUND);
    CHECK(PMIx_Spawn(&where, 1, &app, 1, child) != PMIX_SUCCESS);
    PMIX_APP_DESTRUCT(&app);
    printf("lost\n");
}

static void there(void)
{
    char host[256];

    CHECK(gethostname(host, sizeof(host)) == 0);
    fence();
    printf("rank %u runs on %s\n", me.rank, host);
}

/* Has one allocation of Slurm, and waits for another one, until it is killed. */
static void hold_in_slurm(void)
{
    show(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_CPUS, 1), seconds(600));
    ask(PMIX_ALLOC_NEW, number(PMIX_ALLOC_NUM_NODES, 999), text(PMIX_ALLOC_REQ_ID, "many"));
}

static void inside(void)
{
    struct stat found;

    AT("wait for the file go");
    while (stat("go", &found) != 0) {
        usleep(10000);
    }
}

int main(int argc, char **argv)
{
    const char *role = argc > 1 ? argv[1] : "";

    start();
    if (strcmp(role, "machine") == 0) {
        on_machine();
    } else if (strcmp(role, "hold") == 0) {
        hold();
    } else if (strcmp(role, "slurm") == 0) {
        in_slurm();
    } else if (strcmp(role, "slurm-hold") == 0) {
        hold_in_slurm();
    } else if (strcmp(role, "slurm-spawn") == 0) {
        spawn_in_slurm();
    } else if (strcmp(role, "slurm-lose") == 0) {
        lose_in_slurm();
    } else if (strcmp(role, "sleep") == 0) {
        sleep(1000);
    } else if (strcmp(role, "there") == 0) {
        there();
    } else if (strcmp(role, "inside") == 0) {
        inside();
    } else {
        without_scheduler();
        fence();
    }
    return finish();
}
