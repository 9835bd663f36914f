/* Heartbeats: a rank requests monitoring, sends heartbeats for a while, and
 * stops. It then receives the event that it has requested. A server without
 * monitoring returns PMIX_ERR_NOT_SUPPORTED, and nothing else happens.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "event.h"

int main(void)
{
    pmix_status_t alert = PMIX_MONITOR_HEARTBEAT_ALERT, status;
    pmix_info_t monitor, directives[3], *results = NULL;
    size_t nresults = 0;
    uint32_t seconds = 1, drops = 1;

    start();
    handle_events(&alert, 1, NULL, 0, on_final);
    PMIX_INFO_LOAD(&monitor, PMIX_MONITOR_HEARTBEAT, NULL, PMIX_POINTER);
    PMIX_INFO_LOAD(&directives[0], PMIX_MONITOR_ID, "watch-me", PMIX_STRING);
    PMIX_INFO_LOAD(&directives[1], PMIX_MONITOR_HEARTBEAT_TIME, &seconds, PMIX_UINT32);
    PMIX_INFO_LOAD(&directives[2], PMIX_MONITOR_HEARTBEAT_DROPS, &drops, PMIX_UINT32);
    AT("PMIx_Process_monitor");
    status = PMIx_Process_monitor(&monitor, PMIX_MONITOR_HEARTBEAT_ALERT, directives, 3, &results, &nresults);
    if (status != PMIX_ERR_NOT_SUPPORTED) {
        CHECK_EITHER(status, PMIX_SUCCESS, PMIX_OPERATION_SUCCEEDED);
        for (int i = 0; i < 100; i++) {
            PMIx_Heartbeat();
        }
        CHECK_NUMBER(count_seen(4, PMIX_MONITOR_HEARTBEAT_ALERT), 0);
        wait_seen(4, PMIX_MONITOR_HEARTBEAT_ALERT, 1);
    }
    fence();
    return finish();
}
