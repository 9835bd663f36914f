/* The placement of the process: its cpuset and locality if it is bound, its
 * directory, and the relative locality of the peers on the same node.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_value_t *value = NULL;
    pmix_info_t optional;
    bool yes = true;
    pmix_status_t status;
    char *mine = NULL;

    start();
    PMIX_INFO_LOAD(&optional, PMIX_OPTIONAL, &yes, PMIX_BOOL);

    /* An unbound process has no cpuset; a bound one has a list of numbers. */
    status = PMIx_Get(&me, PMIX_CPUSET, &optional, 1, &value);
    if (status == PMIX_SUCCESS) {
        CHECK_TYPE(value, PMIX_STRING);
        CHECK(value->data.string == NULL || strpbrk(value->data.string, "0123456789") != NULL);
        PMIX_VALUE_RELEASE(value);
    } else {
        CHECK_STATUS(status, PMIX_ERR_NOT_FOUND);
    }

    status = PMIx_Get(&me, PMIX_LOCALITY_STRING, &optional, 1, &value);
    if (status == PMIX_SUCCESS) {
        CHECK_TYPE(value, PMIX_STRING);
        if (value->data.string != NULL) {
            mine = strdup(value->data.string);
        }
        PMIX_VALUE_RELEASE(value);
    } else {
        CHECK_STATUS(status, PMIX_ERR_NOT_FOUND);
    }
#if PMIX_VERSION_MAJOR >= 4
    if (mine != NULL) {
        pmix_locality_t locality = 0;
        /* Up to 5.0.11 the library computes the locality, but returns
         * PMIX_ERR_TAKE_NEXT_OPTION. */
        status = PMIx_Get_relative_locality(mine, mine, &locality);
        CHECK(status == PMIX_SUCCESS || status == -1366);
        CHECK((locality & PMIX_LOCALITY_SHARE_NODE) != 0);
    }
#endif

    status = PMIx_Get(&me, PMIX_PROCDIR, &optional, 1, &value);
    if (status == PMIX_SUCCESS) {
        CHECK_TYPE(value, PMIX_STRING);
        CHECK(value->data.string[0] == '/');
        PMIX_VALUE_RELEASE(value);
    }
    free(mine);
    return finish();
}
