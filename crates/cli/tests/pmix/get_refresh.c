/* A key is read, put again with another value, and read again: with
 * PMIX_GET_REFRESH_CACHE the second get returns the new value.
 * run: 2
 * nodes: 2
 * not: 3,4 (they cannot drop a cached value)
 */
#include "check.h"

int main(void)
{
    pmix_proc_t other;
    pmix_info_t refresh;
    bool yes = true;

    start();
    need_ranks(2);
    other = peer((me.rank + 1) % job_size);
    for (uint32_t round = 0; round < 5; round++) {
        pmix_value_t *value = NULL;

        put_number(PMIX_REMOTE, "changing", round * 10 + me.rank);
        put_number(PMIX_LOCAL, "changing", round * 10 + me.rank);
        put_number(PMIX_GLOBAL, "changing", round * 10 + me.rank);
        CHECK_OK(PMIx_Commit());
        fence();
        PMIX_INFO_LOAD(&refresh, PMIX_GET_REFRESH_CACHE, &yes, PMIX_BOOL);
        CHECK_OK(PMIx_Get(&other, "changing", &refresh, 1, &value));
        CHECK_NUMBER(number_in(value), round * 10 + other.rank);
        PMIX_VALUE_RELEASE(value);
        fence();
    }
    return finish();
}
