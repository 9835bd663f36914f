/* Eight threads of every rank read the keys of all others at the same time, after
 * one of them has fetched the keys.
 * run: 4
 * nodes: 4
 */
#include "check.h"

#define THREADS 8
#define KEYS 20

static void *reader(void *argument)
{
    uint32_t thread = (uint32_t)(uintptr_t)argument;

    for (uint32_t i = 0; i < KEYS * job_size; i++) {
        uint32_t which = (i * 7 + thread * 3) % (KEYS * job_size);
        pmix_proc_t other = peer(which / KEYS);
        pmix_value_t *value = NULL;
        char key[32];

        /* A rank can get its own keys only after it has put them. */
        if (other.rank == me.rank) {
            continue;
        }
        snprintf(key, sizeof(key), "thread-key-%u", which % KEYS);
        CHECK_OK(PMIx_Get(&other, key, NULL, 0, &value));
        CHECK_NUMBER(number_in(value), which);
        PMIX_VALUE_RELEASE(value);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];

    start();
    for (uint32_t i = 0; i < KEYS; i++) {
        char key[32];

        snprintf(key, sizeof(key), "thread-key-%u", i);
        put_number(PMIX_GLOBAL, key, me.rank * KEYS + i);
    }
    CHECK_OK(PMIx_Commit());
    fence_data();
    reader(NULL);
    for (uint32_t thread = 0; thread < THREADS; thread++) {
        CHECK(pthread_create(&threads[thread], NULL, reader, (void *)(uintptr_t)thread) == 0);
    }
    for (uint32_t thread = 0; thread < THREADS; thread++) {
        CHECK(pthread_join(threads[thread], NULL) == 0);
    }
    fence();
    return finish();
}
