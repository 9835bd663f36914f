/* A get without a key returns all keys that a rank has put, as an array of infos.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_proc_t other;
    pmix_value_t *value = NULL;
    const pmix_value_t *item;
    pmix_info_t *infos;
    size_t count;

    start();
    put_number(PMIX_GLOBAL, "alpha", me.rank);
    put_text(PMIX_GLOBAL, "beta", "two");
    CHECK_OK(PMIx_Commit());
    fence_data();
    other = peer((me.rank + 1) % job_size);
    CHECK_NUMBER(number_of(&other, "alpha"), other.rank);
    CHECK_OK(PMIx_Get(&other, NULL, NULL, 0, &value));
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    CHECK_NUMBER(value->data.darray->type, PMIX_INFO);
    infos = value->data.darray->array;
    count = value->data.darray->size;
    item = value_among(infos, count, "alpha");
    CHECK(item != NULL);
    CHECK_NUMBER(number_in(item), other.rank);
    item = value_among(infos, count, "beta");
    CHECK(item != NULL);
    CHECK_TEXT(item->data.string, "two");
    PMIX_VALUE_RELEASE(value);
    fence();
    return finish();
}
