/* A deregistered handler is not called again. The remaining handlers are, and
 * the code may be registered again.
 * run: 2
 * nodes: 2
 */
#include "event.h"

int main(void)
{
    pmix_status_t code = EVENT(1), marker = EVENT(9);
    size_t first, second;

    start();
    need_ranks(2);
    first = handle_events(&code, 1, NULL, 0, on_first);
    second = handle_events(&code, 1, NULL, 0, on_second);
    CHECK(first != second);
    handle_events(&marker, 1, NULL, 0, on_final);
    for (int round = 1; round <= 3; round++) {
        fence();
        if (me.rank == 0) {
            send_unkept(EVENT(1), PMIX_RANGE_NAMESPACE, (uint32_t)round);
            send_unkept(EVENT(9), PMIX_RANGE_NAMESPACE, (uint32_t)round);
        } else {
            wait_seen(4, EVENT(9), round);
            CHECK_NUMBER(count_seen(1, EVENT(1)), 1);
            CHECK_NUMBER(count_seen(2, EVENT(1)), round < 3 ? round : 2);
        }
        fence();
        if (round == 1) {
            stop_events(first);
        } else if (round == 2) {
            stop_events(second);
        }
    }
    CHECK_OK(PMIx_Commit());
    handle_events(&code, 1, NULL, 0, on_third);
    fence();
    if (me.rank == 0) {
        send_unkept(EVENT(1), PMIX_RANGE_NAMESPACE, 4);
    } else {
        CHECK_NUMBER(wait_seen(3, EVENT(1), 1).number, 4);
    }
    fence();
    return finish();
}
