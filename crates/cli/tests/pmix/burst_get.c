/* A burst of non-blocking gets, of keys that exist and of keys committed while
 * the gets wait. Every callback is called exactly once.
 * run: 4
 * nodes: 4
 */
#include "check.h"

#define KEYS 100

struct answer {
    struct waiter *waiter;
    uint32_t expected;
    uint32_t calls;
};

static void on_value(pmix_status_t status, pmix_value_t *value, void *cbdata)
{
    struct answer *answer = cbdata;

    answer->calls++;
    if (status == PMIX_SUCCESS && (value == NULL || number_in(value) != (long long)answer->expected)) {
        status = PMIX_ERR_BAD_PARAM;
    }
    wake(answer->waiter, status);
}

int main(void)
{
    struct waiter done = WAITER;
    struct answer *answers;
    char (*keys)[32];
    size_t count = 0;

    start();
    answers = calloc((size_t)job_size * KEYS, sizeof(*answers));
    keys = calloc((size_t)job_size * KEYS, sizeof(*keys));
    for (uint32_t i = 0; i < KEYS; i++) {
        for (pmix_rank_t rank = 0; rank < job_size; rank++) {
            pmix_proc_t other = peer(rank);

            /* A rank can get its own keys only after it has put them. */
            if (rank == me.rank) {
                continue;
            }
            snprintf(keys[count], sizeof(keys[count]), "burst-%u", i);
            answers[count].waiter = &done;
            answers[count].expected = rank * KEYS + i;
            CHECK_OK(PMIx_Get_nb(&other, keys[count], NULL, 0, on_value, &answers[count]));
            count++;
        }
    }
    for (uint32_t i = 0; i < KEYS; i++) {
        char key[32];

        snprintf(key, sizeof(key), "burst-%u", i);
        put_number(PMIX_GLOBAL, key, me.rank * KEYS + i);
    }
    CHECK_OK(PMIx_Commit());
    CHECK_OK(wait_for(&done, (int)count));
    fence();
    for (size_t i = 0; i < count; i++) {
        CHECK_NUMBER(answers[i].calls, 1);
    }
    free(answers);
    free(keys);
    return finish();
}
