/* Publish, lookup and unpublish: one key and several keys of several types,
 * published by one rank and looked up by all others.
 * run: 1
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_info_t infos[3];
    pmix_pdata_t found[3];
    uint64_t number = UINT64_C(1) << 40;
    char octets[] = {0, 'x', 0};
    pmix_byte_object_t bytes = {octets, sizeof(octets)};
    char *keys[] = {"pub-text", "pub-number", "pub-bytes", NULL};
    pmix_proc_t publisher;

    start();
    publisher = peer(job_size - 1);
    if (me.rank == job_size - 1) {
        PMIX_INFO_LOAD(&infos[0], "pub-text", "hello", PMIX_STRING);
        PMIX_INFO_LOAD(&infos[1], "pub-number", &number, PMIX_UINT64);
        PMIX_INFO_LOAD(&infos[2], "pub-bytes", &bytes, PMIX_BYTE_OBJECT);
        CHECK_OK(PMIx_Publish(infos, 3));
    }
    fence();

    PMIX_PDATA_CONSTRUCT(&found[0]);
    PMIX_LOAD_KEY(found[0].key, "pub-text");
    CHECK_OK(PMIx_Lookup(found, 1, NULL, 0));
    CHECK(same_proc(&found[0].proc, &publisher));
    CHECK_NUMBER(found[0].value.type, PMIX_STRING);
    CHECK_TEXT(found[0].value.data.string, "hello");

    for (int i = 0; i < 3; i++) {
        PMIX_PDATA_CONSTRUCT(&found[i]);
        PMIX_LOAD_KEY(found[i].key, keys[2 - i]);
    }
    CHECK_OK(PMIx_Lookup(found, 3, NULL, 0));
    CHECK_NUMBER(found[0].value.type, PMIX_BYTE_OBJECT);
    CHECK_NUMBER(found[0].value.data.bo.size, sizeof(octets));
    CHECK(memcmp(found[0].value.data.bo.bytes, octets, sizeof(octets)) == 0);
    CHECK_NUMBER(found[1].value.data.uint64, number);
    CHECK_TEXT(found[2].value.data.string, "hello");

    /* A lookup of a key that is never published fails. */
    PMIX_PDATA_CONSTRUCT(&found[0]);
    PMIX_LOAD_KEY(found[0].key, "pub-never");
    CHECK_STATUS(PMIx_Lookup(found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
    fence();

    /* Unpublish one key: the others remain. Then unpublish all. */
    if (me.rank == job_size - 1) {
        char *one[] = {"pub-number", NULL};
        CHECK_OK(PMIx_Unpublish(one, NULL, 0));
    }
    fence();
    PMIX_PDATA_CONSTRUCT(&found[0]);
    PMIX_LOAD_KEY(found[0].key, "pub-number");
    CHECK_STATUS(PMIx_Lookup(found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
    PMIX_PDATA_CONSTRUCT(&found[0]);
    PMIX_LOAD_KEY(found[0].key, "pub-text");
    CHECK_OK(PMIx_Lookup(found, 1, NULL, 0));
    fence();
    if (me.rank == job_size - 1) {
        CHECK_OK(PMIx_Unpublish(NULL, NULL, 0));
    }
    fence();
    for (int i = 0; i < 3; i++) {
        PMIX_PDATA_CONSTRUCT(&found[0]);
        PMIX_LOAD_KEY(found[0].key, keys[i]);
        CHECK_STATUS(PMIx_Lookup(found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
    }
    fence();
    return finish();
}
