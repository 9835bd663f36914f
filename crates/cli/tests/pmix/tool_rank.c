/* A rank that initializes as a tool (PMIx_tool_init) is also a client, keeps
 * its name, and can query the processes of its job as tools do.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "query.h"
#include <pmix_tool.h>

int main(void)
{
    pmix_info_t *results = NULL, qualifier;
    size_t count = 0;
    pmix_proc_t all;

    start_deadline();
    CHECK_OK(PMIx_tool_init(&me, NULL, 0));
    CHECK_TEXT(me.nspace, getenv("PMIX_NAMESPACE"));
    CHECK_NUMBER(me.rank, strtoul(getenv("PMIX_RANK"), NULL, 10));
    all = peer(PMIX_RANK_WILDCARD);
    job_size = (uint32_t)number_of(&all, PMIX_JOB_SIZE);
    CHECK_NUMBER(job_size, 2);
    fence();
    PMIX_INFO_LOAD(&qualifier, PMIX_NSPACE, me.nspace, PMIX_STRING);
    CHECK_OK(ask(PMIX_QUERY_PROC_TABLE, &qualifier, 1, &results, &count));
    CHECK(value_among(results, count, PMIX_QUERY_PROC_TABLE) != NULL);
    PMIX_INFO_FREE(results, count);
    fence();
    CHECK_OK(PMIx_tool_finalize());
    return 0;
}
