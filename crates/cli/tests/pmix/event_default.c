/* The default handler gets events that no other handler has handled, but no
 * event that is marked as not for default handlers.
 * run: 2
 * nodes: 2
 */
#include "event.h"

int main(void)
{
    pmix_status_t own = EVENT(2);

    start();
    need_ranks(2);
    handle_events(NULL, 0, NULL, 0, on_first);
    handle_events(&own, 1, NULL, 0, on_final);
    fence();
    if (me.rank == 0) {
        pmix_info_t info;
        bool yes = true;

        send_number(EVENT(1), PMIX_RANGE_NAMESPACE, 1);
        send_number(EVENT(2), PMIX_RANGE_NAMESPACE, 2);
        PMIX_INFO_LOAD(&info, PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
        notify(EVENT(3), PMIX_RANGE_NAMESPACE, &info, 1);
        send_number(EVENT(9), PMIX_RANGE_NAMESPACE, 9);
    } else {
        wait_seen(1, EVENT(9), 1);
        CHECK_NUMBER(count_seen(1, EVENT(1)), 1);
        CHECK_NUMBER(count_seen(4, EVENT(2)), 1);
        CHECK_NUMBER(count_seen(1, EVENT(2)), 0);
        CHECK_NUMBER(count_seen(-1, EVENT(3)), 0);
    }
    fence();
    return finish();
}
