/* Whether the node is oversubscribed. The key exists only if it is: libraries
 * test whether the key exists and ignore its value.
 * run: 1
 */
#include "check.h"

int main(int argc, char **argv)
{
    pmix_value_t *value = NULL;
    pmix_proc_t all;
    pmix_status_t status;

    start();
    all = peer(PMIX_RANK_WILDCARD);
    status = PMIx_Get(&all, PMIX_NODE_OVERSUBSCRIBED, NULL, 0, &value);
    if (argc > 1 && strcmp(argv[1], "crowded") == 0) {
        CHECK_STATUS(status, PMIX_SUCCESS);
        CHECK_TYPE(value, PMIX_BOOL);
        CHECK(value->data.flag);
        PMIX_VALUE_RELEASE(value);
    } else {
        CHECK_STATUS(status, PMIX_ERR_NOT_FOUND);
    }
    fence();
    return finish();
}
