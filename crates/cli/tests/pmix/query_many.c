/* A hundred concurrent queries from every rank, with the non-blocking call.
 * run: 3
 * nodes: 3
 * not: 3 (uses features of later versions)
 */
#include "query.h"

static void on_answer(pmix_status_t status, pmix_info_t *info, size_t count, void *cbdata,
                      pmix_release_cbfunc_t release, void *release_data)
{
    if (status == PMIX_SUCCESS && value_among(info, count, PMIX_QUERY_NAMESPACES) == NULL) {
        status = PMIX_ERR_NOT_FOUND;
    }
    if (release != NULL) {
        release(release_data);
    }
    wake(cbdata, status);
}

int main(void)
{
    struct waiter done = WAITER;
    pmix_query_t *queries;

    start();
    for (int i = 0; i < 100; i++) {
        /* The library uses the query until it calls back. */
        PMIX_QUERY_CREATE(queries, 1);
        queries->keys = calloc(2, sizeof(char *));
        queries->keys[0] = strdup(PMIX_QUERY_NAMESPACES);
        CHECK_OK(PMIx_Query_info_nb(queries, 1, on_answer, &done));
    }
    CHECK_OK(wait_for(&done, 100));
    fence();
    return finish();
}
