/* Logs to the syslog in all ways, and prints what has become of each. */
#include <stdio.h>
#include <syslog.h>
#include <time.h>

#include <pmix.h>

int main(void)
{
    pmix_proc_t me;
    pmix_info_t data[2], directives[2];
    int priority = LOG_DAEMON | LOG_INFO;
    time_t then = 1795260948;
    pmix_status_t either, local, global, both;

    if (PMIX_SUCCESS != PMIx_Init(&me, NULL, 0)) {
        return 1;
    }
    PMIX_INFO_LOAD(&data[0], PMIX_LOG_SYSLOG, "either\nof them", PMIX_STRING);
    either = PMIx_Log(data, 1, NULL, 0);
    PMIX_INFO_LOAD(&data[0], PMIX_LOG_LOCAL_SYSLOG, "local", PMIX_STRING);
    PMIX_INFO_LOAD(&directives[0], PMIX_LOG_SYSLOG_PRI, &priority, PMIX_INT);
    local = PMIx_Log(data, 1, directives, 1);
    PMIX_INFO_LOAD(&data[0], PMIX_LOG_GLOBAL_SYSLOG, "global", PMIX_STRING);
    PMIX_INFO_LOAD(&directives[1], PMIX_LOG_TIMESTAMP, &then, PMIX_TIME);
    global = PMIx_Log(data, 1, directives, 2);
    PMIX_INFO_LOAD(&data[0], PMIX_LOG_STDERR, "shown\n", PMIX_STRING);
    PMIX_INFO_LOAD(&data[1], PMIX_LOG_SYSLOG, "last", PMIX_STRING);
    both = PMIx_Log(data, 2, NULL, 0);
    printf("%u: either %d, local %d, global %d, both %d\n", me.rank, either, local, global, both);
    return PMIX_SUCCESS != PMIx_Finalize(NULL, 0);
}
