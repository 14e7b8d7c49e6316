/* The condition of a GPU's hardware: fields, spare rows, limits of power and temperature, the VBIOS. Not of MIG devices. */
#define _GNU_SOURCE
#include "library.h"

#include <stdio.h>
#include <string.h>

/* As pynvml's c_nvmlFieldValue_t. */
struct field_value {
    unsigned field, scope;
    int64_t timestamp, latency;
    unsigned type;
    nvmlReturn_t result;
    union {
        double d;
        unsigned ui;
        unsigned long long ull;
    } value;
};

static const struct field *field_of(const struct gpu *gpu, unsigned id, unsigned scope) {
    for (size_t i = 0; i < gpu->field_count; i++)
        if (gpu->fields[i].id == id && gpu->fields[i].scope == scope)
            return &gpu->fields[i];
    return NULL;
}

/* Each entry has its answer; one that this GPU does not have is NOT_SUPPORTED in a call that succeeds. The first 32 bits are
 * the value whatever type the driver names: R545 calls a memory temperature a double (DcgmCacheManager.cpp). */
API nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t handle, int count, struct field_value *values) {
    BEGIN(handle);
    REQUIRE(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
    for (int i = 0; i < count; i++) {
        char called[64];
        snprintf(called, sizeof called, "%s(%u)", __func__, values[i].field);
        count_call(called);
        const struct field *field = device.ci ? NULL : field_of(device.gpu, values[i].field, values[i].scope);
        if (field && field->silent)
            continue;
        values[i].timestamp = 1700000000000000;
        values[i].result = field ? (nvmlReturn_t)field->result : NVML_ERROR_NOT_SUPPORTED;
        if (values[i].result == NVML_SUCCESS) {
            values[i].type = field->type;
            values[i].value.ull = field->value;
        }
    }
    return NVML_SUCCESS;
}

static nvmlReturn_t number(const struct device *device, const struct number *number, unsigned *target) {
    REQUIRE(!device->ci && number->known, NVML_ERROR_NOT_SUPPORTED);
    *target = (unsigned)number->value;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t handle, unsigned *milliwatts) {
    BEGIN(handle);
    return number(&device, &device.gpu->power_limit_mw, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetPowerManagementLimit(nvmlDevice_t handle, unsigned *milliwatts) {
    BEGIN(handle);
    return number(&device, &device.gpu->power_limit_mw, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetPowerManagementDefaultLimit(nvmlDevice_t handle, unsigned *milliwatts) {
    BEGIN(handle);
    return number(&device, &device.gpu->power_default_mw, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t handle, unsigned which, unsigned *celsius) {
    BEGIN(handle);
    const struct number *limits[] = {&device.gpu->limit_shutdown, &device.gpu->limit_slowdown,
                                     &device.gpu->limit_memory_max, &device.gpu->limit_gpu_max};
    REQUIRE(which < sizeof limits / sizeof *limits, NVML_ERROR_NOT_SUPPORTED);
    return number(&device, limits[which], celsius);
}

API nvmlReturn_t nvmlDeviceGetVbiosVersion(nvmlDevice_t handle, char *version, unsigned length) {
    BEGIN(handle);
    REQUIRE(!device.ci && *device.gpu->vbios, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(strlen(device.gpu->vbios) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(version, device.gpu->vbios);
    return NVML_SUCCESS;
}

#if VARIANT >= OLD
struct bank_counts {
    unsigned max, high, partial, low, none;
};

API nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t handle, struct bank_counts *counts) {
    BEGIN(handle);
    const struct banks *banks = &device.gpu->banks;
    REQUIRE(!device.ci && banks->known, NVML_ERROR_NOT_SUPPORTED);
    *counts = (struct bank_counts){banks->max, banks->high, banks->partial, banks->low, banks->none};
    return NVML_SUCCESS;
}
#endif
