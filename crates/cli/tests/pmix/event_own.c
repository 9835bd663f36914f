/* Events within one process, between its libraries: no other process receives them.
 * run: 2
 * nodes: 2
 */
#include "event.h"

int main(void)
{
    pmix_status_t codes[] = {EVENT(1), PMIX_MODEL_DECLARED};
    pmix_info_t info[2];
    uint32_t number = me.rank;
    bool yes = true;

    start();
    handle_events(codes, 2, NULL, 0, on_final);
    fence();
    number = 100 + me.rank;
    PMIX_INFO_LOAD(&info[0], "event.number", &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
    notify(EVENT(1), PMIX_RANGE_PROC_LOCAL, info, 2);
    CHECK_NUMBER(wait_seen(4, EVENT(1), 1).number, 100 + me.rank);
    notify(PMIX_MODEL_DECLARED, PMIX_RANGE_PROC_LOCAL, info, 2);
    CHECK_NUMBER(wait_seen(4, PMIX_MODEL_DECLARED, 1).number, 100 + me.rank);
    fence();
    CHECK_NUMBER(count_seen(4, EVENT(1)), 1);
    CHECK_NUMBER(count_seen(4, PMIX_MODEL_DECLARED), 1);
    return finish();
}
