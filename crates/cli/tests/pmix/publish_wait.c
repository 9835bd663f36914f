/* A lookup that waits: it starts before the key is published and returns after
 * that; a lookup of several keys returns when all exist.
 * run: 3
 * nodes: 3
 */
#include "check.h"

struct answer {
    struct waiter waiter;
    uint32_t numbers;
    uint32_t sum;
};

static void on_found(pmix_status_t status, pmix_pdata_t data[], size_t count, void *cbdata)
{
    struct answer *answer = cbdata;

    for (size_t i = 0; i < count; i++) {
        if (data[i].value.type == PMIX_UINT32) {
            answer->numbers++;
            answer->sum += data[i].value.data.uint32;
        }
    }
    wake(&answer->waiter, status);
}

static void publish(const char *key, uint32_t number)
{
    pmix_info_t info;
    PMIX_INFO_LOAD(&info, key, &number, PMIX_UINT32);
    CHECK_OK(PMIx_Publish(&info, 1));
}

int main(void)
{
    pmix_info_t info[2];
    int all = 0, seconds = 30;
    char *keys[] = {"wait-a", "wait-b", NULL};
    struct answer answer = {.waiter = WAITER};

    start();
    need_ranks(3);
    PMIX_INFO_LOAD(&info[0], PMIX_WAIT, &all, PMIX_INT);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    if (me.rank == 0) {
        /* The fence is sent after the lookup, so the others publish after the lookup. */
        CHECK_OK(PMIx_Lookup_nb(keys, info, 2, on_found, &answer));
    }
    fence();
    if (me.rank == 1) {
        publish("wait-a", 30);
    }
    fence();
    if (me.rank == 2) {
        publish("wait-b", 12);
    }
    if (me.rank == 0) {
        CHECK_OK(wait_for(&answer.waiter, 1));
        CHECK_NUMBER(answer.numbers, 2);
        CHECK_NUMBER(answer.sum, 42);
    }
    fence();
    return finish();
}
