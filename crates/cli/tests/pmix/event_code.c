/* An event for the whole job: a handler for its code is called once, with the
 * source and the sender's infos; a handler for another code is not called.
 * run: 2
 * run: 5
 * nodes: 5
 */
#include "event.h"

int main(void)
{
    pmix_status_t codes[] = {EVENT(1), EVENT(2)}, other = EVENT(3), last = EVENT(9);

    start();
    need_ranks(2);
    handle_events(codes, 2, NULL, 0, on_first);
    handle_events(&other, 1, NULL, 0, on_second);
    handle_events(&last, 1, NULL, 0, on_third);
    fence();
    if (me.rank == 0) {
        send_number(EVENT(2), PMIX_RANGE_NAMESPACE, 77);
        send_number(EVENT(9), PMIX_RANGE_NAMESPACE, 1);
    } else {
        struct seen event = wait_seen(1, EVENT(2), 1);

        CHECK_TEXT(event.source.nspace, me.nspace);
        CHECK_NUMBER(event.source.rank, 0);
        CHECK_NUMBER(event.number, 77);
        wait_seen(3, EVENT(9), 1);
        CHECK_NUMBER(count_seen(-1, EVENT(2)), 1);
        CHECK_NUMBER(count_seen(2, EVENT(2)), 0);
        CHECK_NUMBER(count_seen(-1, EVENT(1)), 0);
    }
    fence();
    return finish();
}
