/* Output of other ranks: a server may refuse it to a rank that is only a
 * client. If the server allows it, the output of the neighbour arrives.
 * run: 2
 * nodes: 2
 * not: 3 (it receives no output)
 */
#include "check.h"
#include <pmix_tool.h>

static struct waiter output = WAITER;

static void on_output(size_t id, pmix_iof_channel_t channel, pmix_proc_t *source, pmix_byte_object_t *payload,
                      pmix_info_t info[], size_t count)
{
    (void)id;
    (void)info;
    (void)count;
    if ((channel & PMIX_FWD_STDOUT_CHANNEL) != 0 && source->rank == 1 && payload != NULL && payload->size > 0 &&
        memmem(payload->bytes, payload->size, "neighbour", 9) != NULL) {
        wake(&output, PMIX_SUCCESS);
    }
}

int main(void)
{
    struct waiter registered = WAITER;
    pmix_proc_t other;
    pmix_status_t status = PMIX_SUCCESS;

    start();
    need_ranks(2);
    other = peer(1);
    if (me.rank == 0) {
        AT("PMIx_IOF_pull");
        status = PMIx_IOF_pull(&other, 1, NULL, 0, PMIX_FWD_STDOUT_CHANNEL, on_output, on_registered, &registered);
        if (status == PMIX_SUCCESS) {
            status = wait_for(&registered, 1);
        }
    }
    fence();
    if (me.rank == 1) {
        puts("output of the neighbour");
        fflush(stdout);
    }
    if (me.rank == 0 && status == PMIX_SUCCESS) {
        wait_for(&output, 1);
    }
    fence();
    return finish();
}
