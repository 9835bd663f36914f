/* One PMIx_Init and one PMIx_Finalize, with checks before, between and after them.
 * run: 1
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_proc_t again;

    start_deadline();
    CHECK(strpbrk(PMIx_Get_version(), "0123456789") != NULL);
    CHECK(!PMIx_Initialized());
    CHECK_STATUS(PMIx_Commit(), PMIX_ERR_INIT);
    CHECK_OK(PMIx_Init(&me, NULL, 0));
    CHECK(PMIx_Initialized());
    CHECK_TEXT(me.nspace, getenv("PMIX_NAMESPACE"));
    CHECK_NUMBER(me.rank, strtoul(getenv("PMIX_RANK"), NULL, 10));
    CHECK(strlen(me.nspace) > 0);

    /* A second call only increments a counter, and returns the same name. */
    CHECK_OK(PMIx_Init(&again, NULL, 0));
    CHECK(same_proc(&again, &me));
    CHECK_OK(PMIx_Finalize(NULL, 0));
    CHECK(PMIx_Initialized());
    fence();

    CHECK_OK(PMIx_Finalize(NULL, 0));
    CHECK(!PMIx_Initialized());
    CHECK_STATUS(PMIx_Commit(), PMIX_ERR_INIT);
    return 0;
}
