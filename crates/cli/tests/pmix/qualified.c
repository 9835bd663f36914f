/* The same key twice, distinguished by a qualifier (PMIX_QUALIFIED_VALUE).
 * run: 2
 * nodes: 2
 * not: 3,4 (qualifiers of values exist since 5.0)
 */
#include "check.h"

static void put_qualified(const char *key, uint32_t number, uint32_t qualifier)
{
    pmix_info_t items[2];
    pmix_data_array_t array = {.type = PMIX_INFO, .size = 2, .array = items};
    pmix_value_t value;

    PMIX_INFO_LOAD(&items[0], key, &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&items[1], "colour", &qualifier, PMIX_UINT32);
    PMIX_INFO_SET_QUALIFIER(&items[1]);
    value.type = PMIX_DATA_ARRAY;
    value.data.darray = &array;
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, PMIX_QUALIFIED_VALUE, &value));
}

static pmix_status_t get_qualified(const pmix_proc_t *proc, const char *key, uint32_t qualifier, uint32_t *number)
{
    pmix_value_t *value = NULL;
    pmix_info_t info[2];
    pmix_status_t status;
    bool yes = true;

    PMIX_INFO_LOAD(&info[0], "colour", &qualifier, PMIX_UINT32);
    PMIX_INFO_SET_QUALIFIER(&info[0]);
    PMIX_INFO_LOAD(&info[1], PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    status = PMIx_Get(proc, key, info, 2, &value);
    if (status == PMIX_SUCCESS) {
        *number = (uint32_t)number_in(value);
        PMIX_VALUE_RELEASE(value);
    }
    return status;
}

int main(void)
{
    pmix_proc_t other;
    uint32_t number = 0;

    start();
    put_qualified("paint", 10 + me.rank, 1);
    put_qualified("paint", 20 + me.rank, 2);
    put_number(PMIX_GLOBAL, "paint", 30 + me.rank);
    CHECK_OK(PMIx_Commit());
    fence_data();
    other = peer((me.rank + 1) % job_size);
    CHECK_NUMBER(number_of(&other, "paint"), 30 + other.rank);
    CHECK_OK(get_qualified(&other, "paint", 1, &number));
    CHECK_NUMBER(number, 10 + other.rank);
    CHECK_OK(get_qualified(&other, "paint", 2, &number));
    CHECK_NUMBER(number, 20 + other.rank);
    CHECK_ERROR(get_qualified(&other, "paint", 3, &number));
    fence();
    return finish();
}
