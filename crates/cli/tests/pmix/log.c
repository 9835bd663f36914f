/* PMIx_Log to stderr and stdout: the call succeeds, and the launcher prints the
 * texts (the README says what the harness looks for).
 * run: 2 => any
 * nodes: 2 => any
 */
#include "check.h"

static void log_text(const char *channel, const char *text)
{
    pmix_info_t data, directive;
    bool yes = true;

    PMIX_INFO_LOAD(&data, channel, text, PMIX_STRING);
    CHECK_OK(PMIx_Log(&data, 1, NULL, 0));
    PMIX_INFO_LOAD(&directive, PMIX_LOG_GENERATE_TIMESTAMP, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Log(&data, 1, &directive, 1));
}

int main(void)
{
    struct waiter done = WAITER;
    pmix_info_t data;
    char text[64];

    start();
    snprintf(text, sizeof(text), "logged to stderr by rank %u\n", me.rank);
    log_text(PMIX_LOG_STDERR, text);
    snprintf(text, sizeof(text), "logged to stdout by rank %u\n", me.rank);
    log_text(PMIX_LOG_STDOUT, text);
    PMIX_INFO_LOAD(&data, PMIX_LOG_STDERR, "logged without blocking\n", PMIX_STRING);
    AT("PMIx_Log_nb");
    {
        pmix_status_t status = PMIx_Log_nb(&data, 1, NULL, 0, on_op, &done);
        if (status != PMIX_OPERATION_SUCCEEDED) {
            CHECK_OK(status);
            CHECK_OK(wait_for(&done, 1));
        }
    }
    fence();
    passed();
    return finish();
}
