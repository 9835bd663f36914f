/* The jobs that exist, their processes, and their sizes.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "query.h"

int main(void)
{
    pmix_info_t *results = NULL, qualifier;
    size_t count = 0;
    const pmix_value_t *value;

    start();
    fence();
    CHECK_OK(ask(PMIX_QUERY_NAMESPACES, NULL, 0, &results, &count));
    value = value_among(results, count, PMIX_QUERY_NAMESPACES);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_STRING);
    CHECK(strstr(value->data.string, me.nspace) != NULL);
    PMIX_INFO_FREE(results, count);

    PMIX_INFO_LOAD(&qualifier, PMIX_NSPACE, me.nspace, PMIX_STRING);
    CHECK_OK(ask(PMIX_JOB_SIZE, &qualifier, 1, &results, &count));
    value = value_among(results, count, PMIX_JOB_SIZE);
    CHECK(value != NULL);
    CHECK_NUMBER(number_in(value), job_size);
    PMIX_INFO_FREE(results, count);
    fence();
    return finish();
}
