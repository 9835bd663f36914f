/* Values of one megabyte of every rank: incompressible bytes, compressible
 * bytes and a compressible text. Rank 0 also puts four megabytes.
 * run: 4
 * nodes: 4
 */
#include "check.h"

#define MIB ((size_t)1 << 20)

/* Bytes without a pattern, which every process can compute from the rank. */
static void fill(char *bytes, size_t count, uint32_t rank)
{
    uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (rank + 1);

    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes[i] = (char)(state >> 24);
    }
}

static void put_bytes(const char *key, char *bytes, size_t count)
{
    pmix_value_t value;

    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = bytes;
    value.data.bo.size = count;
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, key, &value));
}

static void expect_bytes(const pmix_proc_t *proc, const char *key, const char *bytes, size_t count)
{
    pmix_value_t *value = NULL;

    CHECK_OK(PMIx_Get(proc, key, NULL, 0, &value));
    CHECK_TYPE(value, PMIX_BYTE_OBJECT);
    CHECK_NUMBER(value->data.bo.size, count);
    CHECK(memcmp(value->data.bo.bytes, bytes, count) == 0);
    PMIX_VALUE_RELEASE(value);
}

/* Libraries compress a long text when it is put. From 5.0 on they return it
 * compressed, with a type of its own. */
static void expect_text(const pmix_proc_t *proc, const char *key, const char *text)
{
    pmix_value_t *value = NULL;

    CHECK_OK(PMIx_Get(proc, key, NULL, 0, &value));
#if PMIX_VERSION_MAJOR >= 4
    if (value->type == PMIX_COMPRESSED_STRING) {
        uint8_t *got = NULL;
        size_t length = 0;

        CHECK(PMIx_Data_decompress((uint8_t *)value->data.bo.bytes, value->data.bo.size, &got, &length));
        CHECK_NUMBER(length, strlen(text));
        CHECK(memcmp(got, text, length) == 0);
        free(got);
        PMIX_VALUE_RELEASE(value);
        return;
    }
#endif
    CHECK_TYPE(value, PMIX_STRING);
    CHECK_NUMBER(strlen(value->data.string), strlen(text));
    CHECK(strcmp(value->data.string, text) == 0);
    PMIX_VALUE_RELEASE(value);
}

int main(void)
{
    char *bytes = malloc(4 * MIB), *text = malloc(MIB);

    start();
    fill(bytes, MIB, me.rank);
    put_bytes("random", bytes, MIB);
    memset(bytes, 'x', MIB);
    put_bytes("flat", bytes, MIB);
    memset(text, 'a' + (int)(me.rank % 26), MIB - 1);
    text[MIB - 1] = '\0';
    put_text(PMIX_GLOBAL, "text", text);
    if (me.rank == 0) {
        fill(bytes, 4 * MIB, 1000);
        put_bytes("huge", bytes, 4 * MIB);
    }
    CHECK_OK(PMIx_Commit());
    fence_data();

    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);

        fill(bytes, MIB, rank);
        expect_bytes(&other, "random", bytes, MIB);
        memset(bytes, 'x', MIB);
        expect_bytes(&other, "flat", bytes, MIB);
        memset(text, 'a' + (int)(rank % 26), MIB - 1);
        expect_text(&other, "text", text);
    }
    {
        pmix_proc_t first = peer(0);
        fill(bytes, 4 * MIB, 1000);
        expect_bytes(&first, "huge", bytes, 4 * MIB);
    }
    fence();
    free(bytes);
    free(text);
    return finish();
}
