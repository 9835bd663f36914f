/* An event sent before any handler is registered is cached: a process that
 * registers later receives it once, unless the sender forbids caching.
 * run: 2
 * nodes: 2
 */
#include "event.h"

int main(void)
{
    pmix_status_t kept = EVENT(1), dropped = EVENT(2), marker = EVENT(9);

    start();
    need_ranks(2);
    handle_events(&marker, 1, NULL, 0, on_first);
    fence();
    if (me.rank == 0) {
        pmix_info_t info;
        bool yes = true;

        send_number(EVENT(1), PMIX_RANGE_NAMESPACE, 41);
        PMIX_INFO_LOAD(&info, PMIX_EVENT_DO_NOT_CACHE, &yes, PMIX_BOOL);
        notify(EVENT(2), PMIX_RANGE_NAMESPACE, &info, 1);
    }
    fence();
    if (me.rank != 0) {
        handle_events(&kept, 1, NULL, 0, on_final);
        handle_events(&dropped, 1, NULL, 0, on_final);
        CHECK_NUMBER(wait_seen(4, EVENT(1), 1).number, 41);
    }
    fence();
    if (me.rank == 0) {
        send_number(EVENT(9), PMIX_RANGE_NAMESPACE, 9);
    } else {
        wait_seen(1, EVENT(9), 1);
        CHECK_NUMBER(count_seen(4, EVENT(1)), 1);
        CHECK_NUMBER(count_seen(4, EVENT(2)), 0);
    }
    fence();
    return finish();
}
