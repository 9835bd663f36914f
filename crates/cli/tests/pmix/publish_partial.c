/* A lookup of two keys of which one exists returns that one, and a status that
 * does not claim that both were found.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "check.h"

int main(void)
{
    pmix_info_t info;
    pmix_pdata_t found[2];
    uint32_t number = 5;
    pmix_status_t status;

    start();
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info, "half-here", &number, PMIX_UINT32);
        CHECK_OK(PMIx_Publish(&info, 1));
    }
    fence();
    PMIX_PDATA_CONSTRUCT(&found[0]);
    PMIX_PDATA_CONSTRUCT(&found[1]);
    PMIX_LOAD_KEY(found[0].key, "half-missing");
    PMIX_LOAD_KEY(found[1].key, "half-here");
    status = PMIx_Lookup(found, 2, NULL, 0);
    CHECK(status == PMIX_SUCCESS || status == PMIX_ERR_PARTIAL_SUCCESS);
    CHECK_NUMBER(found[0].value.type, PMIX_UNDEF);
    CHECK_NUMBER(found[1].value.type, PMIX_UINT32);
    CHECK_NUMBER(found[1].value.data.uint32, 5);
    fence();
    return finish();
}
