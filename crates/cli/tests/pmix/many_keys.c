/* A thousand keys per rank, including keys of the maximum length. The next rank
 * reads all of them.
 * run: 3
 * nodes: 3
 */
#include "check.h"

#define KEYS 1000

int main(void)
{
    char key[PMIX_MAX_KEYLEN + 1];
    pmix_proc_t other;

    start();
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "key-%u-of-%u", i, me.rank);
        put_number(PMIX_GLOBAL, key, me.rank * KEYS + i);
    }
    memset(key, 'k', PMIX_MAX_KEYLEN);
    key[PMIX_MAX_KEYLEN] = '\0';
    put_number(PMIX_GLOBAL, key, me.rank);
    CHECK_OK(PMIx_Commit());
    fence_data();

    other = peer((me.rank + 1) % job_size);
    CHECK_NUMBER(number_of(&other, key), other.rank);
    for (uint32_t i = 0; i < KEYS; i++) {
        snprintf(key, sizeof(key), "key-%u-of-%u", i, other.rank);
        CHECK_NUMBER(number_of(&other, key), other.rank * KEYS + i);
    }
    fence();
    return finish();
}
