/* Group construction that shares data: each member contributes a local context
 * id and a text, and every member can get those of all others by the context id.
 * run: 4
 * nodes: 4
 * not: 3,4,5 (they do not forward group information)
 */
#include "group.h"

int main(void)
{
    pmix_proc_t members[64];
    pmix_info_t info[2], handed[2], *results = NULL, qualifier;
    pmix_data_array_t array = {.type = PMIX_INFO, .size = 2, .array = handed};
    size_t nresults = 0, context, local = 0;
    const pmix_value_t *value;
    bool yes = true;
    char text[32];

    start();
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        members[rank] = peer(rank);
    }
    local = 1234 + me.rank;
    snprintf(text, sizeof(text), "endpoint of %u", me.rank);
    PMIX_INFO_LOAD(&handed[0], PMIX_GROUP_LOCAL_CID, &local, PMIX_SIZE);
    PMIX_INFO_LOAD(&handed[1], "endpoint", text, PMIX_STRING);
    PMIX_INFO_LOAD(&info[0], PMIX_GROUP_ASSIGN_CONTEXT_ID, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_GROUP_INFO, &array, PMIX_DATA_ARRAY);
    CHECK_OK(PMIx_Group_construct("with-data", members, job_size, info, 2, &results, &nresults));
    value = value_among(results, nresults, PMIX_GROUP_CONTEXT_ID);
    CHECK(value != NULL);
    context = value->data.size;

    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_value_t *got = NULL;

        PMIX_INFO_LOAD(&qualifier, PMIX_GROUP_CONTEXT_ID, &context, PMIX_SIZE);
        PMIX_INFO_SET_QUALIFIER(&qualifier);
        CHECK_OK(PMIx_Get(&members[rank], PMIX_GROUP_LOCAL_CID, &qualifier, 1, &got));
        CHECK_NUMBER(number_in(got), 1234 + rank);
        PMIX_VALUE_RELEASE(got);
        CHECK_OK(PMIx_Get(&members[rank], "endpoint", &qualifier, 1, &got));
        snprintf(text, sizeof(text), "endpoint of %u", (unsigned)rank);
        CHECK_TYPE(got, PMIX_STRING);
        CHECK_TEXT(got->data.string, text);
        PMIX_VALUE_RELEASE(got);
    }
    CHECK_OK(PMIx_Group_destruct("with-data", NULL, 0));
    fence();
    return finish();
}
