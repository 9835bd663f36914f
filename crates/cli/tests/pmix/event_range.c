/* The range of an event: the sending process only, its node, its job, the
 * session, and global.
 * run: 4
 * nodes: 4
 */
#include "event.h"

int main(void)
{
    static const pmix_data_range_t ranges[] = {PMIX_RANGE_LOCAL, PMIX_RANGE_NAMESPACE, PMIX_RANGE_SESSION,
                                               PMIX_RANGE_GLOBAL};
    pmix_status_t codes[] = {EVENT(0), EVENT(1), EVENT(2), EVENT(3), EVENT(4), EVENT(9)};
    pmix_proc_t first;
    bool same_node;

    start();
    need_ranks(2);
    handle_events(codes, 6, NULL, 0, on_final);
    fence();
    first = peer(0);
    same_node = is_here(&first);
    if (me.rank == 0) {
        send_number(EVENT(4), PMIX_RANGE_PROC_LOCAL, 4);
        wait_seen(4, EVENT(4), 1);
        for (int i = 0; i < 4; i++) {
            send_number(EVENT(i), ranges[i], (uint32_t)i);
        }
        send_number(EVENT(9), PMIX_RANGE_NAMESPACE, 9);
    } else {
        wait_seen(4, EVENT(9), 1);
        for (int i = 1; i < 4; i++) {
            CHECK_NUMBER(wait_seen(4, EVENT(i), 1).number, i);
        }
        if (same_node) {
            CHECK_NUMBER(wait_seen(4, EVENT(0), 1).number, 0);
        } else {
            CHECK_NUMBER(count_seen(4, EVENT(0)), 0);
        }
        CHECK_NUMBER(count_seen(4, EVENT(4)), 0);
    }
    fence();
    return finish();
}
