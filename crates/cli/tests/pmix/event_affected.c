/* A handler registered for events about certain processes only: the event names
 * the affected process.
 * run: 3
 * nodes: 3
 */
#include "event.h"

int main(void)
{
    pmix_status_t code = EVENT(1), marker = EVENT(9);
    pmix_proc_t one, two;
    pmix_info_t info;

    start();
    need_ranks(3);
    one = peer(1);
    two = peer(2);
    PMIX_INFO_LOAD(&info, PMIX_EVENT_AFFECTED_PROC, &one, PMIX_PROC);
    handle_events(&code, 1, &info, 1, on_first);
    handle_events(&marker, 1, NULL, 0, on_final);
    fence();
    if (me.rank == 0) {
        pmix_info_t about[2];
        uint32_t number = 2;

        PMIX_INFO_LOAD(&about[0], PMIX_EVENT_AFFECTED_PROC, &two, PMIX_PROC);
        PMIX_INFO_LOAD(&about[1], "event.number", &number, PMIX_UINT32);
        notify(EVENT(1), PMIX_RANGE_NAMESPACE, about, 2);
        number = 1;
        PMIX_INFO_LOAD(&about[0], PMIX_EVENT_AFFECTED_PROC, &one, PMIX_PROC);
        PMIX_INFO_LOAD(&about[1], "event.number", &number, PMIX_UINT32);
        notify(EVENT(1), PMIX_RANGE_NAMESPACE, about, 2);
        send_number(EVENT(9), PMIX_RANGE_NAMESPACE, 9);
    } else {
        CHECK_NUMBER(wait_seen(1, EVENT(1), 1).number, 1);
        wait_seen(4, EVENT(9), 1);
        CHECK_NUMBER(count_seen(1, EVENT(1)), 1);
    }
    fence();
    return finish();
}
