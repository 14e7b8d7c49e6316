/* Health of a GPU: plain numbers of the node file, of which a GPU may lack any. Not of MIG devices. */
#define _GNU_SOURCE
#include "library.h"

static nvmlReturn_t give(const struct device *device, const struct number *number, uint64_t *target) {
    REQUIRE(!device->ci && number->known, NVML_ERROR_NOT_SUPPORTED);
    *target = number->value;
    return NVML_SUCCESS;
}

static nvmlReturn_t give_unsigned(const struct device *device, const struct number *number, unsigned *target) {
    uint64_t value;
    nvmlReturn_t result = give(device, number, &value);
    if (result == NVML_SUCCESS)
        *target = (unsigned)value;
    return result;
}

API nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t handle, unsigned *milliwatts) {
    BEGIN(handle);
    return give_unsigned(&device, &device.gpu->power_mw, milliwatts);
}

API nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t handle, uint64_t *millijoules) {
    BEGIN(handle);
    return give(&device, &device.gpu->energy_mj, millijoules);
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t handle, unsigned sensor, unsigned *celsius) {
    BEGIN(handle);
    REQUIRE(sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    return give_unsigned(&device, &device.gpu->temperature, celsius);
}

#if VARIANT >= MODERN
struct temperature {
    unsigned version, sensor;
    int celsius;
};

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t handle, struct temperature *target) {
    BEGIN(handle);
    REQUIRE(target->version == (sizeof *target | 1u << 24), NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
    REQUIRE(target->sensor == 0, NVML_ERROR_INVALID_ARGUMENT);
    unsigned celsius;
    nvmlReturn_t result = give_unsigned(&device, &device.gpu->temperature, &celsius);
    if (result == NVML_SUCCESS)
        target->celsius = (int)celsius;
    return result;
}
#endif

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t handle, unsigned clock, unsigned *megahertz) {
    BEGIN(handle);
    const struct number *clocks[] = {&device.gpu->clock_graphics, &device.gpu->clock_sm, &device.gpu->clock_memory,
                                     &device.gpu->clock_video};
    REQUIRE(clock < sizeof clocks / sizeof *clocks, NVML_ERROR_INVALID_ARGUMENT);
    return give_unsigned(&device, clocks[clock], megahertz);
}

API nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t handle, uint64_t *reasons) {
    BEGIN(handle);
    return give(&device, &device.gpu->throttle, reasons);
}

#if VARIANT >= ABI535
API nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t handle, uint64_t *reasons) {
    BEGIN(handle);
    return give(&device, &device.gpu->throttle, reasons);
}
#endif

/* errors: 0 corrected, 1 uncorrected; volatile and aggregate counters are the same here. */
API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t handle, unsigned errors, unsigned counter, uint64_t *count) {
    BEGIN(handle);
    REQUIRE(errors < 2 && counter < 2, NVML_ERROR_INVALID_ARGUMENT);
    return give(&device, errors ? &device.gpu->ecc_uncorrected : &device.gpu->ecc_corrected, count);
}

/* All errors are in device memory (location 2), none elsewhere. */
API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t handle, unsigned errors, unsigned counter,
                                                 unsigned location, uint64_t *count) {
    BEGIN(handle);
    REQUIRE(errors < 2 && counter < 2 && location < 8, NVML_ERROR_INVALID_ARGUMENT);
    nvmlReturn_t result = give(&device, errors ? &device.gpu->ecc_uncorrected : &device.gpu->ecc_corrected, count);
    if (result == NVML_SUCCESS && location != 2)
        *count = 0;
    return result;
}

/* The boards have no fans of their own, and no counters of PCIe traffic. */
API nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t handle, unsigned *percent) {
    BEGIN(handle);
    (void)percent;
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetPcieThroughput(nvmlDevice_t handle, unsigned counter, unsigned *kib) {
    BEGIN(handle);
    (void)counter, (void)kib;
    return NVML_ERROR_NOT_SUPPORTED;
}

API nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t handle, unsigned *mode) {
    BEGIN(handle);
    return give_unsigned(&device, &device.gpu->compute_mode, mode);
}

API nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t handle, unsigned *mode) {
    BEGIN(handle);
    return give_unsigned(&device, &device.gpu->persistence, mode);
}

#if VARIANT >= ABI535
struct protected_memory {
    uint64_t protected_kib, unprotected_kib;
};

API nvmlReturn_t nvmlDeviceGetConfComputeMemSizeInfo(nvmlDevice_t handle, struct protected_memory *memory) {
    BEGIN(handle);
    (void)memory;
    return NVML_ERROR_NOT_SUPPORTED;
}
#endif
