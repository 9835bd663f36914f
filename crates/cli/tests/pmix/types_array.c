/* Put, commit, fence and get of arrays: numbers, strings, names, infos, byte
 * objects, nested arrays, and an empty array.
 * run: 2
 * nodes: 2
 */
#include "check.h"

static void put_array(const char *key, pmix_data_type_t type, void *items, size_t count)
{
    pmix_data_array_t array = {.type = type, .size = count, .array = items};
    pmix_value_t value;

    value.type = PMIX_DATA_ARRAY;
    value.data.darray = &array;
    check_what = key;
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("put of %s: %s (%d)", key, PMIx_Error_string(status), status);
    }
}

static pmix_value_t *get_array(const pmix_proc_t *proc, const char *key, pmix_data_type_t type, size_t count)
{
    pmix_value_t *value = NULL;

    check_what = key;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("get of %s: %s (%d)", key, PMIx_Error_string(status), status);
    }
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    if (value->data.darray == NULL || value->data.darray->type != type || value->data.darray->size != count) {
        FAIL("%s: expected %zu of %s, got %zu of %s", key, count, PMIx_Data_type_string(type),
             value->data.darray == NULL ? (size_t)0 : value->data.darray->size,
             PMIx_Data_type_string(value->data.darray == NULL ? PMIX_UNDEF : value->data.darray->type));
    }
    return value;
}

int main(void)
{
    int32_t numbers[1000];
    uint64_t wide[] = {0, 1, UINT64_MAX};
    uint8_t octets[] = {0, 128, 255};
    bool flags[] = {true, false, true};
    char *texts[] = {"one", "", "three"};
    pmix_proc_t names[2], other;
    pmix_info_t infos[2], inner[2];
    pmix_byte_object_t objects[] = {{"ab\0c", 4}, {"z", 1}};
    pmix_data_array_t deep = {.type = PMIX_INFO, .size = 2, .array = inner};
    uint32_t number = 11;
    pmix_value_t *value;

    start();
    for (int i = 0; i < 1000; i++) {
        numbers[i] = i * 1000003 * (i % 2 == 0 ? 1 : -1);
    }
    names[0] = peer(0);
    names[1] = peer(PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&inner[0], "inner.text", "deep down", PMIX_STRING);
    PMIX_INFO_LOAD(&inner[1], "inner.number", &number, PMIX_UINT32);
    PMIX_INFO_LOAD(&infos[0], "outer.array", &deep, PMIX_DATA_ARRAY);
    PMIX_INFO_LOAD(&infos[1], "outer.proc", &names[0], PMIX_PROC);

    put_array("int32", PMIX_INT32, numbers, 1000);
    put_array("uint64", PMIX_UINT64, wide, 3);
    put_array("uint8", PMIX_UINT8, octets, 3);
#if PMIX_VERSION_MAJOR >= 4
    put_array("bool", PMIX_BOOL, flags, 3);
#endif
    put_array("string", PMIX_STRING, texts, 3);
    put_array("proc", PMIX_PROC, names, 2);
    put_array("info", PMIX_INFO, infos, 2);
    put_array("bytes", PMIX_BYTE_OBJECT, objects, 2);
    CHECK_OK(PMIx_Commit());
    fence_data();

    other = peer((me.rank + 1) % job_size);
    value = get_array(&other, "int32", PMIX_INT32, 1000);
    CHECK(memcmp(value->data.darray->array, numbers, sizeof(numbers)) == 0);
    PMIX_VALUE_RELEASE(value);
    value = get_array(&other, "uint64", PMIX_UINT64, 3);
    CHECK(memcmp(value->data.darray->array, wide, sizeof(wide)) == 0);
    PMIX_VALUE_RELEASE(value);
    value = get_array(&other, "uint8", PMIX_UINT8, 3);
    CHECK(memcmp(value->data.darray->array, octets, sizeof(octets)) == 0);
    PMIX_VALUE_RELEASE(value);
#if PMIX_VERSION_MAJOR >= 4
    value = get_array(&other, "bool", PMIX_BOOL, 3);
    CHECK(memcmp(value->data.darray->array, flags, sizeof(flags)) == 0);
    PMIX_VALUE_RELEASE(value);
#else
    (void)flags;
#endif
    value = get_array(&other, "string", PMIX_STRING, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_TEXT(((char **)value->data.darray->array)[i], texts[i]);
    }
    PMIX_VALUE_RELEASE(value);
    value = get_array(&other, "proc", PMIX_PROC, 2);
    for (int i = 0; i < 2; i++) {
        CHECK(same_proc(&((pmix_proc_t *)value->data.darray->array)[i], &names[i]));
    }
    PMIX_VALUE_RELEASE(value);

    value = get_array(&other, "info", PMIX_INFO, 2);
    {
        pmix_info_t *outer = value->data.darray->array;
        const pmix_value_t *nested = value_among(outer, 2, "outer.array");
        const pmix_value_t *leaf;

        CHECK(nested != NULL && nested->type == PMIX_DATA_ARRAY && nested->data.darray->size == 2);
        leaf = value_among(nested->data.darray->array, 2, "inner.text");
        CHECK(leaf != NULL);
        CHECK_TEXT(leaf->data.string, "deep down");
        leaf = value_among(nested->data.darray->array, 2, "inner.number");
        CHECK(leaf != NULL);
        CHECK_NUMBER(leaf->data.uint32, 11);
        leaf = value_among(outer, 2, "outer.proc");
        CHECK(leaf != NULL && leaf->type == PMIX_PROC && same_proc(leaf->data.proc, &names[0]));
    }
    PMIX_VALUE_RELEASE(value);

    value = get_array(&other, "bytes", PMIX_BYTE_OBJECT, 2);
    for (int i = 0; i < 2; i++) {
        pmix_byte_object_t *got = &((pmix_byte_object_t *)value->data.darray->array)[i];
        CHECK_NUMBER(got->size, objects[i].size);
        CHECK(memcmp(got->bytes, objects[i].bytes, objects[i].size) == 0);
    }
    PMIX_VALUE_RELEASE(value);
    return finish();
}
