/* Gets with a timeout: of a key that is never put, of a rank that never commits,
 * and of a key that exists in time. Everything else continues meanwhile.
 * run: 2
 * nodes: 2
 */
#include "check.h"

static pmix_status_t get_within(pmix_rank_t rank, const char *key, int seconds)
{
    pmix_proc_t proc = peer(rank);
    pmix_value_t *value = NULL;
    pmix_info_t info;
    pmix_status_t status;

    PMIX_INFO_LOAD(&info, PMIX_TIMEOUT, &seconds, PMIX_INT);
    status = PMIx_Get(&proc, key, &info, 1, &value);
    if (status == PMIX_SUCCESS) {
        PMIX_VALUE_RELEASE(value);
    }
    return status;
}

int main(void)
{
    pmix_rank_t other;

    start();
    need_ranks(2);
    other = (me.rank + 1) % job_size;

    /* No rank has committed anything yet. */
    CHECK_EITHER(get_within(other, "never", 1), PMIX_ERR_TIMEOUT, PMIX_ERR_NOT_FOUND);
    fence();
    put_number(PMIX_GLOBAL, "here", me.rank);
    CHECK_OK(PMIx_Commit());
    CHECK_OK(get_within(other, "here", 20));
    CHECK_EITHER(get_within(other, "never", 1), PMIX_ERR_TIMEOUT, PMIX_ERR_NOT_FOUND);

    /* The same key again: the first failure must not affect this get. */
    CHECK_EITHER(get_within(other, "never", 1), PMIX_ERR_TIMEOUT, PMIX_ERR_NOT_FOUND);
    fence();
    put_number(PMIX_GLOBAL, "never", 1);
    CHECK_OK(PMIx_Commit());
    fence();
    CHECK_OK(get_within(other, "never", 20));
    fence();
    return finish();
}
