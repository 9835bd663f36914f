/* Fabric information: without a fabric, PMIX_ERR_NOT_SUPPORTED or not found.
 * run: 1
 * not: 3 (uses features of later versions)
 */
#include "check.h"

int main(void)
{
    pmix_fabric_t fabric;
    pmix_status_t status;
    pmix_value_t *value = NULL;

    start();
    PMIX_FABRIC_CONSTRUCT(&fabric);
    AT("PMIx_Fabric_register");
    status = PMIx_Fabric_register(&fabric, NULL, 0);
    if (status == PMIX_SUCCESS) {
        CHECK_EITHER(PMIx_Fabric_update(&fabric), PMIX_SUCCESS, PMIX_ERR_NOT_SUPPORTED);
        CHECK_OK(PMIx_Fabric_deregister(&fabric));
    } else {
        CHECK(status == PMIX_ERR_NOT_SUPPORTED || status == PMIX_ERR_NOT_FOUND || status == PMIX_ERR_NOT_AVAILABLE);
    }
    AT("get of fabric coordinates");
    status = PMIx_Get(&me, PMIX_FABRIC_COORDINATES, NULL, 0, &value);
    CHECK(status == PMIX_SUCCESS || status == PMIX_ERR_NOT_FOUND);
    fence();
    return finish();
}
