/* The range of published data: the same key may exist once in each range, and
 * PMIX_RANGE_PROC_LOCAL is visible only to the publisher.
 * run: 2
 * nodes: 2
 */
#include "check.h"

static pmix_status_t publish(const char *key, uint32_t number, pmix_data_range_t range)
{
    pmix_info_t info[2];

    PMIX_INFO_LOAD(&info[0], key, &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&info[1], PMIX_RANGE, &range, PMIX_DATA_RANGE);
    return PMIx_Publish(info, 2);
}

static pmix_status_t lookup(const char *key, pmix_data_range_t range, uint32_t *number)
{
    pmix_info_t info;
    pmix_pdata_t found;
    pmix_status_t status;

    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, key);
    PMIX_INFO_LOAD(&info, PMIX_RANGE, &range, PMIX_DATA_RANGE);
    status = PMIx_Lookup(&found, 1, &info, 1);
    if (status == PMIX_SUCCESS) {
        *number = found.value.data.uint32;
    }
    return status;
}

int main(void)
{
    static const pmix_data_range_t ranges[] = {PMIX_RANGE_LOCAL, PMIX_RANGE_NAMESPACE, PMIX_RANGE_SESSION,
                                               PMIX_RANGE_GLOBAL};
    char key[32];
    uint32_t number = 0;

    start();
    need_ranks(2);
    if (me.rank == 0) {
        for (uint32_t i = 0; i < 4; i++) {
            snprintf(key, sizeof(key), "in-range-%u", i);
            CHECK_OK(publish(key, 10 + i, ranges[i]));
        }
        CHECK_OK(publish("mine-alone", 99, PMIX_RANGE_PROC_LOCAL));
    }
    fence();

    /* Each value is found in the range of its publication. */
    for (uint32_t i = 1; i < 4; i++) {
        snprintf(key, sizeof(key), "in-range-%u", i);
        CHECK_OK(lookup(key, ranges[i], &number));
        CHECK_NUMBER(number, 10 + i);
    }
    {
        pmix_proc_t first = peer(0);
        if (is_here(&first)) {
            CHECK_OK(lookup("in-range-0", PMIX_RANGE_LOCAL, &number));
            CHECK_NUMBER(number, 10);
        }
    }
    if (me.rank != 0) {
        CHECK_STATUS(lookup("mine-alone", PMIX_RANGE_SESSION, &number), PMIX_ERR_NOT_FOUND);
    }
    fence();
    return finish();
}
