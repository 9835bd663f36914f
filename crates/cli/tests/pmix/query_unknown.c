/* Queries without an answer: an unknown key and a nonexistent job; and two
 * queries in one call, of which only one has an answer.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "query.h"

int main(void)
{
    pmix_info_t *results = NULL, qualifier;
    size_t count = 0;
    pmix_query_t *queries;
    pmix_status_t status;

    start();
    CHECK_ERROR(ask("no.such.key.at.all", NULL, 0, &results, &count));
    PMIX_INFO_LOAD(&qualifier, PMIX_NSPACE, "no-such-namespace", PMIX_STRING);
    CHECK_ERROR(ask(PMIX_QUERY_PROC_TABLE, &qualifier, 1, &results, &count));

    PMIX_QUERY_CREATE(queries, 2);
    queries[0].keys = calloc(2, sizeof(char *));
    queries[0].keys[0] = strdup(PMIX_QUERY_NAMESPACES);
    queries[1].keys = calloc(2, sizeof(char *));
    queries[1].keys[0] = strdup("no.such.key.at.all");
    AT("a query of two keys of which one is known");
    status = PMIx_Query_info(queries, 2, &results, &count);
    if (status != PMIX_SUCCESS && status != PMIX_QUERY_PARTIAL_SUCCESS) {
        FAIL("half a query: expected PMIX_QUERY_PARTIAL_SUCCESS, got %s", PMIx_Error_string(status));
    }
    CHECK(value_among(results, count, PMIX_QUERY_NAMESPACES) != NULL);
    PMIX_INFO_FREE(results, count);
    PMIX_QUERY_FREE(queries, 2);
    fence();
    return finish();
}
