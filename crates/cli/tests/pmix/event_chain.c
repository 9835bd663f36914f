/* Several handlers of one process for one event are called in the requested
 * order, until one reports the event as handled.
 * run: 2
 * nodes: 2
 * not: 3 (a second handler with a requested position crashes it)
 */
#include "event.h"

int main(void)
{
    pmix_status_t code = EVENT(1), pair[] = {EVENT(1), EVENT(2)}, marker = EVENT(9);
    pmix_info_t info;
    bool yes = true;

    start();
    need_ranks(2);
    /* Handlers of single codes are called before those of lists of codes, and those before the default handler. */
    handle_events(NULL, 0, NULL, 0, on_third);
    handle_events(pair, 2, NULL, 0, on_final);
    handle_events(&code, 1, NULL, 0, on_second);
    PMIX_INFO_LOAD(&info, PMIX_EVENT_HDLR_FIRST, &yes, PMIX_BOOL);
    handle_events(&code, 1, &info, 1, on_first);
    handle_events(&marker, 1, NULL, 0, on_second);
    fence();
    if (me.rank == 0) {
        send_number(EVENT(1), PMIX_RANGE_NAMESPACE, 5);
        send_number(EVENT(9), PMIX_RANGE_NAMESPACE, 9);
    } else {
        int order[4], calls = 0;

        wait_seen(2, EVENT(9), 1);
        for (int i = 0; i < seen_count && calls < 4; i++) {
            if (seen[i].code == EVENT(1)) {
                order[calls++] = seen[i].handler;
            }
        }
        CHECK_NUMBER(calls, 3);
        CHECK_NUMBER(order[0], 1);
        CHECK_NUMBER(order[1], 2);
        CHECK_NUMBER(order[2], 4);
    }
    fence();
    return finish();
}
