/* Many events from one rank all arrive, once, in the order sent, while every
 * rank sends to every other one.
 * run: 4
 * nodes: 4
 */
#include "event.h"

#define EVENTS 50

int main(void)
{
    pmix_status_t code = EVENT(1);
    uint32_t next[64] = {0};

    start();
    CHECK(job_size <= 16);
    handle_events(&code, 1, NULL, 0, on_final);
    fence();
    for (uint32_t i = 0; i < EVENTS; i++) {
        pmix_proc_t others[64];
        size_t count = 0;

        for (pmix_rank_t rank = 0; rank < job_size; rank++) {
            if (rank != me.rank) {
                others[count++] = peer(rank);
            }
        }
        send_to(EVENT(1), others, count, i);
    }
    wait_seen(4, EVENT(1), (int)(EVENTS * (job_size - 1)));
    fence();
    for (int i = 0; i < seen_count; i++) {
        CHECK(seen[i].source.rank < job_size && seen[i].source.rank != me.rank);
        CHECK_NUMBER(seen[i].number, next[seen[i].source.rank]);
        next[seen[i].source.rank]++;
    }
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        CHECK_NUMBER(next[rank], rank == me.rank ? 0 : EVENTS);
    }
    fence();
    return finish();
}
