/* A credential is obtained and validated, unless the server provides none.
 * Bytes that are no credential are never valid.
 * run: 1
 * not: 3 (uses features of later versions)
 */
#include "check.h"

int main(void)
{
    pmix_byte_object_t credential = {NULL, 0}, forged = {"forged", 6};
    pmix_info_t *results = NULL;
    size_t nresults = 0;
    pmix_status_t status;

    start();
    AT("PMIx_Get_credential");
    status = PMIx_Get_credential(NULL, 0, &credential);
    if (status == PMIX_SUCCESS) {
        CHECK(credential.size > 0);
        CHECK_OK(PMIx_Validate_credential(&credential, NULL, 0, &results, &nresults));
    } else {
        CHECK_STATUS(status, PMIX_ERR_NOT_SUPPORTED);
    }
    CHECK_ERROR(PMIx_Validate_credential(&forged, NULL, 0, &results, &nresults));
    fence();
    return finish();
}
