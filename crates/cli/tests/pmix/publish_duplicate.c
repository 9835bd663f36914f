/* A key may be published only once per range: a second publish is refused, by
 * the same process and by another one, until the key is unpublished.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "check.h"

static pmix_status_t publish(uint32_t number)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, "once-only", &number, PMIX_UINT32);
    return PMIx_Publish(&info, 1);
}

int main(void)
{
    pmix_pdata_t found;
    char *keys[] = {"once-only", NULL};

    start();
    need_ranks(2);
    if (me.rank == 0) {
        CHECK_OK(publish(1));
        CHECK_STATUS(publish(2), PMIX_ERR_DUPLICATE_KEY);
    }
    fence();
    if (me.rank == 1) {
        CHECK_STATUS(publish(3), PMIX_ERR_DUPLICATE_KEY);
    }
    fence();
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, "once-only");
    CHECK_OK(PMIx_Lookup(&found, 1, NULL, 0));
    CHECK_NUMBER(found.value.data.uint32, 1);
    fence();
    if (me.rank == 0) {
        CHECK_OK(PMIx_Unpublish(keys, NULL, 0));
        CHECK_OK(publish(4));
    }
    fence();
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, "once-only");
    CHECK_OK(PMIx_Lookup(&found, 1, NULL, 0));
    CHECK_NUMBER(found.value.data.uint32, 4);
    fence();
    return finish();
}
