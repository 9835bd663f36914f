/* The sizes, names and directories of the job that every rank gets at init, and
 * checks that they are consistent.
 * run: 1
 * run: 4
 * nodes: 4
 */
#include "check.h"

/* The number of comma-separated parts of a list. */
static uint32_t parts(const char *list)
{
    uint32_t count = 1;

    for (; *list != '\0'; list++) {
        count += *list == ',';
    }
    return count;
}

int main(void)
{
    pmix_proc_t all;
    char *host, *nodes, *job_id, *directory, *peers;
    uint32_t local_size;

    start();
    all = peer(PMIX_RANK_WILDCARD);

    /* Job information. */
    CHECK(me.rank < job_size);
    CHECK(number_of(&all, PMIX_UNIV_SIZE) >= 1);
    CHECK(number_of(&all, PMIX_MAX_PROCS) >= 1);
    CHECK_NUMBER(number_of(&all, PMIX_JOB_NUM_APPS), 1);
    CHECK(number_of(&all, PMIX_NUM_NODES) >= 1);
    CHECK(number_of(&all, PMIX_NUM_NODES) <= job_size);
    job_id = text_of(&all, PMIX_JOBID);
    CHECK(strlen(job_id) > 0);
    nodes = text_of(&all, PMIX_NODE_LIST);
    CHECK_NUMBER(parts(nodes), number_of(&all, PMIX_NUM_NODES));
    directory = text_of(&all, PMIX_NSDIR);
    CHECK(directory[0] == '/');

    /* Application information. */
    CHECK_NUMBER(number_of(&me, PMIX_APPNUM), 0);
    CHECK_NUMBER(number_of(&me, PMIX_APP_RANK), me.rank);
    CHECK_NUMBER(number_of(&all, PMIX_APP_SIZE), job_size);
    CHECK_NUMBER(number_of(&all, PMIX_APPLDR), 0);
    CHECK_NUMBER(number_of(&me, PMIX_GLOBAL_RANK), me.rank);

    /* Node information. */
    host = text_of(&me, PMIX_HOSTNAME);
    CHECK_TEXT(host, getenv("PMIX_HOSTNAME"));
    CHECK(strstr(nodes, host) != NULL);
    CHECK(number_of(&me, PMIX_NODEID) < number_of(&all, PMIX_NUM_NODES));
    local_size = (uint32_t)number_of(&all, PMIX_LOCAL_SIZE);
    CHECK(local_size >= 1 && local_size <= job_size);
    CHECK(number_of(&all, PMIX_NODE_SIZE) >= local_size);
    CHECK(number_of(&me, PMIX_LOCAL_RANK) < local_size);
    CHECK(number_of(&me, PMIX_NODE_RANK) >= number_of(&me, PMIX_LOCAL_RANK));
    CHECK(number_of(&all, PMIX_LOCALLDR) <= me.rank);
    peers = text_of(&all, PMIX_LOCAL_PEERS);
    CHECK_NUMBER(parts(peers), local_size);

    /* Information about the session and about this process. */
    if (library_at_least(5, 0, 0)) {
        number_of(&all, PMIX_SESSION_ID);
    }
#ifdef PMIX_REINCARNATION
    CHECK_NUMBER(number_of(&me, PMIX_REINCARNATION), 0);
#endif

    free(host);
    free(nodes);
    free(job_id);
    free(directory);
    free(peers);
    return finish();
}
