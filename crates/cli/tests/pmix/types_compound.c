/* Put, commit, fence and get of compound types: names, byte objects,
 * environment variables, coordinates, devices, process descriptions.
 * run: 2
 * nodes: 2
 */
#include "check.h"

static pmix_value_t *get(const pmix_proc_t *proc, const char *key, pmix_data_type_t type)
{
    pmix_value_t *value = NULL;

    check_what = key;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("get of %s: %s (%d)", key, PMIx_Error_string(status), status);
    }
    if (value->type != type) {
        FAIL("%s: expected type %s, got %s", key, PMIx_Data_type_string(type), PMIx_Data_type_string(value->type));
    }
    return value;
}

static void put(const char *key, pmix_data_type_t type, pmix_value_t value)
{
    check_what = key;
    value.type = type;
    pmix_status_t status = PMIx_Put(PMIX_GLOBAL, key, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("put of %s: %s (%d)", key, PMIx_Error_string(status), status);
    }
}

#define PUT(key, kind, member, what)          \
    do {                                      \
        pmix_value_t value_;                  \
        memset(&value_, 0, sizeof(value_));   \
        value_.data.member = (what);          \
        put((key), (kind), value_);           \
    } while (0)

int main(void)
{
    char bytes[] = {0, 1, 2, (char)0xff, 0, 'z'};
    pmix_proc_t name, other;
    pmix_byte_object_t object = {bytes, sizeof(bytes)}, nothing = {NULL, 0};
    pmix_envar_t variable = {"PATH", "/a:/b", ':'};
    pmix_value_t *value;

    start();
    PMIX_LOAD_PROCID(&name, "another.namespace", 12);
    PUT("proc", PMIX_PROC, proc, &name);
    PUT("bytes", PMIX_BYTE_OBJECT, bo, object);
    PUT("no-bytes", PMIX_BYTE_OBJECT, bo, nothing);
    PUT("envar", PMIX_ENVAR, envar, variable);
#if PMIX_VERSION_MAJOR >= 4
    pmix_proc_info_t info = {name, "host", "a.out", 42, 0, PMIX_PROC_STATE_RUNNING};
    uint32_t position[3] = {7, UINT32_MAX, 0};
    pmix_coord_t coordinate = {PMIX_COORD_LOGICAL_VIEW, position, 3};
    pmix_geometry_t geometry = {3, "uuid-1", "eth0", &coordinate, 1};
    pmix_device_distance_t distance = {"uuid-2", "mlx5_0", PMIX_DEVTYPE_OPENFABRICS, 10, 65535};
    pmix_endpoint_t endpoint = {"uuid-3", "ib0", {bytes, sizeof(bytes)}};
    PUT("proc-info", PMIX_PROC_INFO, pinfo, &info);
    PUT("coord", PMIX_COORD, coord, &coordinate);
    PUT("geometry", PMIX_GEOMETRY, geometry, &geometry);
    PUT("distance", PMIX_DEVICE_DIST, devdist, &distance);
    PUT("endpoint", PMIX_ENDPOINT, endpoint, &endpoint);
#endif
    CHECK_OK(PMIx_Commit());
    fence_data();

    other = peer((me.rank + 1) % job_size);
    value = get(&other, "proc", PMIX_PROC);
    CHECK(same_proc(value->data.proc, &name));
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "bytes", PMIX_BYTE_OBJECT);
    CHECK_NUMBER(value->data.bo.size, sizeof(bytes));
    CHECK(memcmp(value->data.bo.bytes, bytes, sizeof(bytes)) == 0);
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "no-bytes", PMIX_BYTE_OBJECT);
    CHECK_NUMBER(value->data.bo.size, 0);
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "envar", PMIX_ENVAR);
    CHECK_TEXT(value->data.envar.envar, "PATH");
    CHECK_TEXT(value->data.envar.value, "/a:/b");
    CHECK_NUMBER(value->data.envar.separator, ':');
    PMIX_VALUE_RELEASE(value);

#if PMIX_VERSION_MAJOR >= 4
    value = get(&other, "proc-info", PMIX_PROC_INFO);
    CHECK(same_proc(&value->data.pinfo->proc, &name));
    CHECK_TEXT(value->data.pinfo->hostname, "host");
    CHECK_TEXT(value->data.pinfo->executable_name, "a.out");
    CHECK_NUMBER(value->data.pinfo->pid, 42);
    CHECK_NUMBER(value->data.pinfo->state, PMIX_PROC_STATE_RUNNING);
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "coord", PMIX_COORD);
    CHECK_NUMBER(value->data.coord->view, PMIX_COORD_LOGICAL_VIEW);
    CHECK_NUMBER(value->data.coord->dims, 3);
    CHECK(memcmp(value->data.coord->coord, position, sizeof(position)) == 0);
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "geometry", PMIX_GEOMETRY);
    CHECK_NUMBER(value->data.geometry->fabric, 3);
    CHECK_TEXT(value->data.geometry->uuid, "uuid-1");
    CHECK_TEXT(value->data.geometry->osname, "eth0");
    CHECK_NUMBER(value->data.geometry->ncoords, 1);
    CHECK_NUMBER(value->data.geometry->coordinates[0].coord[1], UINT32_MAX);
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "distance", PMIX_DEVICE_DIST);
    CHECK_TEXT(value->data.devdist->uuid, "uuid-2");
    CHECK_TEXT(value->data.devdist->osname, "mlx5_0");
    CHECK_NUMBER(value->data.devdist->type, PMIX_DEVTYPE_OPENFABRICS);
    CHECK_NUMBER(value->data.devdist->mindist, 10);
    CHECK_NUMBER(value->data.devdist->maxdist, 65535);
    PMIX_VALUE_RELEASE(value);

    value = get(&other, "endpoint", PMIX_ENDPOINT);
    CHECK_TEXT(value->data.endpoint->uuid, "uuid-3");
    CHECK_NUMBER(value->data.endpoint->endpt.size, sizeof(bytes));
    CHECK(memcmp(value->data.endpoint->endpt.bytes, bytes, sizeof(bytes)) == 0);
    PMIX_VALUE_RELEASE(value);
#endif
    return finish();
}
