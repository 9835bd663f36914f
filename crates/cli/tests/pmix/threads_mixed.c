/* Threads that call different functions at the same time: gets, publishes,
 * lookups, queries, and fences over different sets.
 * run: 3
 * nodes: 3
 * not: 5,6 (a blocking call may sleep for ever if other threads call concurrently)
 */
#include "check.h"

static void *getter(void *unused)
{
    (void)unused;
    for (int i = 0; i < 200; i++) {
        pmix_proc_t other = peer((pmix_rank_t)i % job_size);
        CHECK_NUMBER(number_of(&other, "mixed"), other.rank);
    }
    return NULL;
}

static void *publisher(void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < 50; i++) {
        pmix_info_t info;
        pmix_pdata_t found;
        char key[64], *keys[] = {key, NULL};

        snprintf(key, sizeof(key), "mixed-%u-%u", me.rank, i);
        PMIX_INFO_LOAD(&info, key, &i, PMIX_UINT32);
        CHECK_OK(PMIx_Publish(&info, 1));
        PMIX_PDATA_CONSTRUCT(&found);
        PMIX_LOAD_KEY(found.key, key);
        CHECK_OK(PMIx_Lookup(&found, 1, NULL, 0));
        CHECK_NUMBER(found.value.data.uint32, i);
        CHECK_OK(PMIx_Unpublish(keys, NULL, 0));
    }
    return NULL;
}

static void *fencer(void *argument)
{
    pmix_proc_t set[2] = {peer(PMIX_RANK_WILDCARD), me};
    pmix_proc_t *which = argument == NULL ? &set[0] : &set[1];

    for (int i = 0; i < 100; i++) {
        CHECK_OK(PMIx_Fence(which, 1, NULL, 0));
    }
    return NULL;
}

int main(void)
{
    void *(*work[])(void *) = {getter, getter, publisher, fencer, fencer};
    void *arguments[] = {NULL, NULL, NULL, NULL, &work};
    pthread_t threads[5];

    start();
    put_number(PMIX_GLOBAL, "mixed", me.rank);
    CHECK_OK(PMIx_Commit());
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_create(&threads[i], NULL, work[i], arguments[i]) == 0);
    }
    for (int i = 0; i < 5; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    fence();
    return finish();
}
