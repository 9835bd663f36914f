/* PMIx_Store_internal keeps a value in the process: only this process can get
 * it. A put without a commit is equally private.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_proc_t other;
    pmix_value_t value, *got = NULL;
    pmix_info_t immediate;
    bool yes = true;

    start();
    need_ranks(2);
    other = peer((me.rank + 1) % job_size);
    value.type = PMIX_UINT32;
    value.data.uint32 = 100 + me.rank;
    CHECK_OK(PMIx_Store_internal(&me, "private", &value));
    CHECK_NUMBER(number_of(&me, "private"), 100 + me.rank);

    /* The value belongs to another rank, but only this process can get it. */
    value.data.uint32 = 200 + me.rank;
    CHECK_OK(PMIx_Store_internal(&other, "opinion", &value));
    CHECK_NUMBER(number_of(&other, "opinion"), 200 + me.rank);

    put_number(PMIX_GLOBAL, "public", me.rank);
    CHECK_OK(PMIx_Commit());
    put_number(PMIX_GLOBAL, "uncommitted", me.rank);
    CHECK_NUMBER(number_of(&me, "uncommitted"), me.rank);
    fence_data();

    PMIX_INFO_LOAD(&immediate, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    CHECK_NUMBER(number_of(&other, "public"), other.rank);
    CHECK_STATUS(PMIx_Get(&other, "private", &immediate, 1, &got), PMIX_ERR_NOT_FOUND);
    CHECK_STATUS(PMIx_Get(&other, "uncommitted", &immediate, 1, &got), PMIX_ERR_NOT_FOUND);
    fence();
    return finish();
}
