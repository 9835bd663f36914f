/* PMIX_PERSIST_FIRST_READ: one lookup gets the value and deletes it. MPI
 * libraries pass port names and context ids from process to process this way.
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_persistence_t once = PMIX_PERSIST_FIRST_READ;
    pmix_info_t info[2];
    int all = 0, seconds = 30;

    start();
    need_ranks(2);

    /* The ranks pass a token around ten times. */
    for (uint32_t round = 0; round < 10; round++) {
        char key[32];
        uint32_t token = round * 100;
        pmix_pdata_t found;

        if (me.rank != 0) {
            snprintf(key, sizeof(key), "token-%u", me.rank);
            PMIX_INFO_LOAD(&info[0], PMIX_WAIT, &all, PMIX_INT);
            PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
            PMIX_PDATA_CONSTRUCT(&found);
            PMIX_LOAD_KEY(found.key, key);
            CHECK_OK(PMIx_Lookup(&found, 1, info, 2));
            token = found.value.data.uint32;
            CHECK_NUMBER(token, round * 100 + me.rank);

            /* The first lookup has deleted it. */
            PMIX_PDATA_CONSTRUCT(&found);
            PMIX_LOAD_KEY(found.key, key);
            CHECK_STATUS(PMIx_Lookup(&found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
        }
        snprintf(key, sizeof(key), "token-%u", (me.rank + 1) % job_size);
        token++;
        PMIX_INFO_LOAD(&info[0], key, &token, PMIX_UINT32);
        PMIX_INFO_LOAD(&info[1], PMIX_PERSISTENCE, &once, PMIX_PERSIST);
        CHECK_OK(PMIx_Publish(info, 2));
        if (me.rank == 0) {
            PMIX_INFO_LOAD(&info[0], PMIX_WAIT, &all, PMIX_INT);
            PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
            PMIX_PDATA_CONSTRUCT(&found);
            PMIX_LOAD_KEY(found.key, key);
            PMIX_LOAD_KEY(found.key, "token-0");
            CHECK_OK(PMIx_Lookup(&found, 1, info, 2));
            CHECK_NUMBER(found.value.data.uint32, round * 100 + job_size);
        }
    }
    fence();
    return finish();
}
