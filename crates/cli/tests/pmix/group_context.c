/* Context ids of groups: equal for all members, and different for all groups
 * that exist at the same time.
 * run: 4
 * nodes: 4
 * not: 3 (uses features of later versions)
 */
#include "group.h"

#define GROUPS 8

int main(void)
{
    pmix_proc_t members[64];
    size_t contexts[GROUPS];
    char name[32];

    start();
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        members[rank] = peer(rank);
    }
    for (uint32_t i = 0; i < GROUPS; i++) {
        pmix_value_t value;

        snprintf(name, sizeof(name), "context-%u", i);
        contexts[i] = construct(name, members, job_size);
        value.type = PMIX_SIZE;
        value.data.size = contexts[i];
        CHECK_OK(PMIx_Put(PMIX_GLOBAL, name, &value));
        for (uint32_t j = 0; j < i; j++) {
            CHECK(contexts[j] != contexts[i]);
        }
    }
    CHECK_OK(PMIx_Commit());
    fence_data();
    for (uint32_t i = 0; i < GROUPS; i++) {
        snprintf(name, sizeof(name), "context-%u", i);
        expect_same(name, contexts[i], members, job_size);
        CHECK_OK(PMIx_Group_destruct(name, NULL, 0));
    }
    fence();
    return finish();
}
