/* Gets of absent keys return PMIX_ERR_NOT_FOUND, immediately where the caller
 * asks for that: non-reserved and reserved keys, of ranks and of the job, and
 * of nonexistent ranks and namespaces.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_proc_t all, other, nobody, stranger;
    pmix_value_t *value = NULL;
    pmix_info_t optional, immediate;
    bool yes = true;

    start();
    need_ranks(2);
    all = peer(PMIX_RANK_WILDCARD);
    other = peer((me.rank + 1) % job_size);
    nobody = peer(job_size + 5);
    PMIX_LOAD_PROCID(&stranger, "no-such-namespace", 0);
    PMIX_INFO_LOAD(&optional, PMIX_OPTIONAL, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&immediate, PMIX_IMMEDIATE, &yes, PMIX_BOOL);

    CHECK_STATUS(PMIx_Get(&me, "mine", &optional, 1, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&me, "mine", &immediate, 1, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&other, "theirs", &optional, 1, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&other, "theirs", &immediate, 1, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&all, "of-the-job", &optional, 1, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&all, "of-the-job", &immediate, 1, &value), PMIX_ERR_NOT_FOUND);

    /* A reserved key is known from the start or never: no get waits for one. */
    CHECK_STATUS(PMIx_Get(&me, PMIX_CREDENTIAL, NULL, 0, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&other, PMIX_CREDENTIAL, NULL, 0, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&all, PMIX_ANL_MAP, NULL, 0, &value), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&me, PMIX_PARENT_ID, NULL, 0, &value), PMIX_ERR_NOT_FOUND);

    CHECK_ERROR(PMIx_Get(&nobody, PMIX_LOCAL_RANK, &immediate, 1, &value));
    CHECK_ERROR(PMIx_Get(&nobody, "theirs", &immediate, 1, &value));
    CHECK_ERROR(PMIx_Get(&stranger, "theirs", &immediate, 1, &value));
    CHECK_ERROR(PMIx_Get(&stranger, PMIX_JOB_SIZE, &optional, 1, &value));
    fence();
    return finish();
}
