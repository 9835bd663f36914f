/* The process table of a job, and that of one node: every rank appears once,
 * with its pid, program and state.
 * run: 3
 * nodes: 3
 * not: 3 (uses features of later versions)
 */
#include "query.h"

static void expect_table(const char *key, size_t ranks)
{
    pmix_info_t *results = NULL, qualifier;
    size_t count = 0;
    const pmix_value_t *value;
    pmix_proc_info_t *table;
    bool found[64] = {false};

    PMIX_INFO_LOAD(&qualifier, PMIX_NSPACE, me.nspace, PMIX_STRING);
    CHECK_OK(ask(key, &qualifier, 1, &results, &count));
    value = value_among(results, count, key);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_DATA_ARRAY);
    CHECK_NUMBER(value->data.darray->type, PMIX_PROC_INFO);
    CHECK_NUMBER(value->data.darray->size, ranks);
    table = value->data.darray->array;
    for (size_t i = 0; i < ranks; i++) {
        CHECK_TEXT(table[i].proc.nspace, me.nspace);
        CHECK(table[i].proc.rank < job_size && !found[table[i].proc.rank]);
        found[table[i].proc.rank] = true;
        CHECK(table[i].pid > 0);
        CHECK(table[i].hostname != NULL && strlen(table[i].hostname) > 0);
        CHECK(table[i].executable_name != NULL && strstr(table[i].executable_name, "query_procs") != NULL);
        CHECK(table[i].state < PMIX_PROC_STATE_UNTERMINATED);
        if (table[i].proc.rank == me.rank) {
            CHECK_NUMBER(table[i].pid, getpid());
        }
    }
    PMIX_INFO_FREE(results, count);
}

int main(void)
{
    pmix_proc_t all;

    start();
    CHECK(job_size <= 64);
    all = peer(PMIX_RANK_WILDCARD);
    fence();
    expect_table(PMIX_QUERY_PROC_TABLE, job_size);
    expect_table(PMIX_QUERY_LOCAL_PROC_TABLE, (size_t)number_of(&all, PMIX_LOCAL_SIZE));
    fence();
    return finish();
}
