/* A process can unpublish only its own keys: those of another process remain,
 * whether it names the key or unpublishes all.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_info_t info;
    pmix_pdata_t found;
    char *keys[] = {"not-yours", NULL};
    uint32_t number = 8;

    start();
    need_ranks(2);
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info, "not-yours", &number, PMIX_UINT32);
        CHECK_OK(PMIx_Publish(&info, 1));
    }
    fence();
    if (me.rank == 1) {
        /* Either status is accepted, but the key must remain. */
        (void)PMIx_Unpublish(keys, NULL, 0);
        (void)PMIx_Unpublish(NULL, NULL, 0);
    }
    fence();
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, "not-yours");
    CHECK_OK(PMIx_Lookup(&found, 1, NULL, 0));
    CHECK_NUMBER(found.value.data.uint32, 8);
    fence();
    return finish();
}
