/* Two data exchanges one after the other: after the second fence the keys of
 * both rounds are available, with and without data collection.
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    char key[32];

    start();
    for (uint32_t round = 0; round < 4; round++) {
        snprintf(key, sizeof(key), "round-%u", round);
        put_number(PMIX_GLOBAL, key, round * 1000 + me.rank);
        CHECK_OK(PMIx_Commit());
        if (round % 2 == 0) {
            fence_data();
        } else {
            fence();
        }
        for (uint32_t old = 0; old <= round; old++) {
            for (pmix_rank_t rank = 0; rank < job_size; rank++) {
                pmix_proc_t other = peer(rank);
                snprintf(key, sizeof(key), "round-%u", old);
                CHECK_NUMBER(number_of(&other, key), old * 1000 + rank);
            }
        }
        fence();
    }
    return finish();
}
