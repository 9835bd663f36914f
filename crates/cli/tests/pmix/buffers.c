/* One rank packs values into its own buffer, sends it as bytes, and another
 * rank unpacks it, as libraries on top of PMIx do with their messages.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "check.h"

int main(void)
{
    pmix_data_buffer_t buffer;
    pmix_byte_object_t bytes;
    pmix_proc_t other, name, got_name;
    pmix_value_t value, *got = NULL;
    int32_t count = 1;
    uint64_t number = UINT64_MAX - 5, got_number = 0;
    char *text = "packed", *got_text = NULL;

    start();
    need_ranks(2);
    other = peer((me.rank + 1) % job_size);
    name = me;
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    CHECK_OK(PMIx_Data_pack(&other, &buffer, &number, 1, PMIX_UINT64));
    CHECK_OK(PMIx_Data_pack(&other, &buffer, &text, 1, PMIX_STRING));
    CHECK_OK(PMIx_Data_pack(&other, &buffer, &name, 1, PMIX_PROC));
    CHECK_OK(PMIx_Data_unload(&buffer, &bytes));
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo = bytes;
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, "message", &value));
    CHECK_OK(PMIx_Commit());
    fence_data();

    CHECK_OK(PMIx_Get(&other, "message", NULL, 0, &got));
    CHECK_TYPE(got, PMIX_BYTE_OBJECT);
    bytes = got->data.bo;
    got->data.bo.bytes = NULL;
    got->data.bo.size = 0;
    PMIX_DATA_BUFFER_CONSTRUCT(&buffer);
    CHECK_OK(PMIx_Data_load(&buffer, &bytes));
    CHECK_OK(PMIx_Data_unpack(&other, &buffer, &got_number, &count, PMIX_UINT64));
    CHECK(got_number == number);
    CHECK_OK(PMIx_Data_unpack(&other, &buffer, &got_text, &count, PMIX_STRING));
    CHECK_TEXT(got_text, text);
    CHECK_OK(PMIx_Data_unpack(&other, &buffer, &got_name, &count, PMIX_PROC));
    CHECK(same_proc(&got_name, &other));
    free(got_text);
    PMIX_DATA_BUFFER_DESTRUCT(&buffer);
    PMIX_VALUE_RELEASE(got);
    fence();
    return finish();
}
