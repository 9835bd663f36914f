/* The versions of the interface, which the library knows by itself: queried
 * before init, after init, and together with a key that only the server knows.
 * run: 1
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 * not: 4.2.9 (any such query of an initialized process frees memory that it waits on, under every launcher)
 */
#include "query.h"

/* Older headers do not define these keys. */
#ifndef PMIX_QUERY_STABLE_ABI_VERSION
#define PMIX_QUERY_STABLE_ABI_VERSION "pmix.qry.stabiver"
#define PMIX_QUERY_PROVISIONAL_ABI_VERSION "pmix.qry.prabiver"
#endif

static void ask_both(const char *first, const char *second)
{
    pmix_info_t *results = NULL;
    pmix_query_t queries[2];
    size_t count = 0;
    pmix_status_t rc;

    for (int i = 0; i < 2; i++) {
        PMIX_QUERY_CONSTRUCT(&queries[i]);
        PMIX_ARGV_APPEND(rc, queries[i].keys, i == 0 ? first : second);
        CHECK_OK(rc);
    }
    CHECK_OK(PMIx_Query_info(queries, 2, &results, &count));
    CHECK(value_among(results, count, first) != NULL);
    PMIX_INFO_FREE(results, count);
    for (int i = 0; i < 2; i++) {
        PMIX_QUERY_DESTRUCT(&queries[i]);
    }
}

int main(void)
{
    pmix_info_t *results = NULL;
    size_t count = 0;
    pmix_query_t query;
    pmix_status_t rc;

    start_deadline();
    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(rc, query.keys, PMIX_QUERY_STABLE_ABI_VERSION);
    CHECK_OK(rc);
    /* From 5.0 on, libraries may refuse it. */
    CHECK_EITHER(PMIx_Query_info(&query, 1, &results, &count), PMIX_SUCCESS, PMIX_ERR_INIT);
    PMIX_QUERY_DESTRUCT(&query);
    start();
    ask_both(PMIX_QUERY_STABLE_ABI_VERSION, PMIX_QUERY_PROVISIONAL_ABI_VERSION);
    ask_both(PMIX_QUERY_PROVISIONAL_ABI_VERSION, PMIX_QUERY_NAMESPACES);
    ask_both(PMIX_QUERY_NAMESPACES, PMIX_QUERY_STABLE_ABI_VERSION);
    fence();
    return finish();
}
