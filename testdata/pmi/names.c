/* Publishes a name by PMIx, and looks up a name that another process publishes by PMI. */
#include <pmix.h>

#include "check.h"

int main(void)
{
    pmix_proc_t me;
    pmix_info_t info;
    pmix_pdata_t found;
    bool yes = true;

    CHECK(PMIx_Init(&me, NULL, 0) == PMIX_SUCCESS);
    PMIX_INFO_LOAD(&info, "of-pmix", "a port of PMIx", PMIX_STRING);
    CHECK(PMIx_Publish(&info, 1) == PMIX_SUCCESS);
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, "of-pmi");
    PMIX_INFO_LOAD(&info, PMIX_WAIT, &yes, PMIX_BOOL);
    CHECK(PMIx_Lookup(&found, 1, &info, 1) == PMIX_SUCCESS);
    CHECK(found.value.type == PMIX_STRING);
    printf("PMIx found: %s\n", found.value.data.string);
    CHECK(PMIx_Finalize(NULL, 0) == PMIX_SUCCESS);
    return 0;
}
