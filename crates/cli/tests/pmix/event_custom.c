/* Events to a list of processes: one, two, or all of a job by the wildcard. No
 * other process receives them.
 * run: 4
 * nodes: 4
 */
#include "event.h"

int main(void)
{
    pmix_status_t codes[] = {EVENT(1), EVENT(2), EVENT(3)};

    start();
    need_ranks(4);
    handle_events(codes, 3, NULL, 0, on_final);
    fence();
    if (me.rank == 0) {
        pmix_proc_t one = peer(1), two[2] = {peer(1), peer(3)}, all = peer(PMIX_RANK_WILDCARD);

        send_to(EVENT(1), &one, 1, 10);
        send_to(EVENT(2), two, 2, 20);
        send_to(EVENT(3), &all, 1, 30);
    } else {
        CHECK_NUMBER(wait_seen(4, EVENT(3), 1).number, 30);
        CHECK_NUMBER(count_seen(4, EVENT(1)), me.rank == 1);
        CHECK_NUMBER(count_seen(4, EVENT(2)), me.rank == 1 || me.rank == 3);
        CHECK_NUMBER(count_seen(4, EVENT(3)), 1);
    }
    fence();
    return finish();
}
