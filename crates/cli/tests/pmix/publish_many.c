/* Every rank publishes a hundred keys, looks up those of its neighbour, and
 * unpublishes its own, with non-blocking calls.
 * run: 6
 * nodes: 6
 */
#include "check.h"

#define KEYS 100

int main(void)
{
    struct waiter done = WAITER;
    pmix_rank_t next;
    char *own[KEYS + 1];

    start();
    next = (me.rank + 1) % job_size;
    own[KEYS] = NULL;
    for (uint32_t i = 0; i < KEYS; i++) {
        pmix_info_t *info;
        uint32_t number = me.rank * KEYS + i;
        char key[32];

        snprintf(key, sizeof(key), "many-%u-%u", me.rank, i);
        own[i] = strdup(key);
        /* The library uses the info until it calls back. */
        PMIX_INFO_CREATE(info, 1);
        PMIX_INFO_LOAD(info, key, &number, PMIX_UINT32);
        CHECK_OK(PMIx_Publish_nb(info, 1, on_op, &done));
    }
    CHECK_OK(wait_for(&done, KEYS));
    fence();
    for (uint32_t i = 0; i < KEYS; i++) {
        pmix_pdata_t found;
        char key[32];

        snprintf(key, sizeof(key), "many-%u-%u", next, i);
        PMIX_PDATA_CONSTRUCT(&found);
        PMIX_LOAD_KEY(found.key, key);
        CHECK_OK(PMIx_Lookup(&found, 1, NULL, 0));
        CHECK_NUMBER(found.value.data.uint32, next * KEYS + i);
        CHECK_NUMBER(found.proc.rank, next);
    }
    fence();
    done.done = 0;
    CHECK_OK(PMIx_Unpublish_nb(own, NULL, 0, on_op, &done));
    CHECK_OK(wait_for(&done, 1));
    fence();
    for (uint32_t i = 0; i < KEYS; i += 33) {
        pmix_pdata_t found;
        char key[32];

        snprintf(key, sizeof(key), "many-%u-%u", next, i);
        PMIX_PDATA_CONSTRUCT(&found);
        PMIX_LOAD_KEY(found.key, key);
        CHECK_STATUS(PMIx_Lookup(&found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
    }
    fence();
    return finish();
}
