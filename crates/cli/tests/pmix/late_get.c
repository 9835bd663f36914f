/* A get that arrives before its key: rank 0 gets a key and then signals rank 1,
 * which puts the key only after that signal. Rank 1 has committed other keys
 * before.
 * run: 2
 * run: 5
 * nodes: 5
 */
#include "check.h"

static struct waiter arrived = WAITER;
static uint32_t got;

static void on_value(pmix_status_t status, pmix_value_t *value, void *cbdata)
{
    if (status == PMIX_SUCCESS && value != NULL && value->type == PMIX_UINT32) {
        got = value->data.uint32;
    }
    wake(cbdata, status);
}

int main(void)
{
    pmix_proc_t first, second;
    pmix_info_t patience;
    int seconds = 30;

    start();
    need_ranks(2);
    first = peer(0);
    second = peer(1);
    PMIX_INFO_LOAD(&patience, PMIX_TIMEOUT, &seconds, PMIX_INT);
    put_number(PMIX_GLOBAL, "early", me.rank);
    CHECK_OK(PMIx_Commit());
    fence();

    if (me.rank != 1) {
        CHECK_OK(PMIx_Get_nb(&second, "late", &patience, 1, on_value, &arrived));
    }
    if (me.rank == 0) {
        /* This get follows the first one on the same connection, so when the
         * server answers it, the server has the first one. */
        CHECK_NUMBER(number_of(&first, "early"), 0);
        put_number(PMIX_GLOBAL, "asked", 1);
        CHECK_OK(PMIx_Commit());
    }
    if (me.rank == 1) {
        CHECK_NUMBER(number_at_last(0, "asked"), 1);
        put_number(PMIX_GLOBAL, "late", 4711);
        CHECK_OK(PMIx_Commit());
    } else {
        CHECK_OK(wait_for(&arrived, 1));
        CHECK_NUMBER(got, 4711);
        CHECK_NUMBER(number_of(&second, "late"), 4711);
    }
    fence();
    return finish();
}
