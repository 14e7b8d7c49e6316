/* MIG: modes, slots with holes, the way between a MIG device and its GPU, and who may see what instances hold. */
#define _GNU_SOURCE
#include "library.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool opens(unsigned minor) {
    const char *folder = getenv("FAKE_NVML_CAPABILITIES");
    char path[1024];
    snprintf(path, sizeof path, "%s/nvidia-cap%u", folder ? folder : "/dev/nvidia-caps", minor);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0)
        close(file);
    return file >= 0;
}

/* Minor number of gpuN/giM/access: after config and monitor each GPU has 15 instances, with 8 more numbers each. */
static unsigned access_of(const struct gpu *gpu, unsigned gi) {
    return 3 + ((unsigned)gpu->minor.value * 15 + gi) * 9;
}

/* Who can open the device of mig/monitor is shown all, and who can open an instance's own device, that one: the driver
 * asks for the descriptor, root or not. */
bool mig_shown(const struct device *device) {
    char monitor[64];
    if (device->gpu->mig != MIG_ON || !device_switched("mig_monitor", device, monitor, sizeof monitor))
        return true;
    return opens((unsigned)atoi(monitor)) || (device->ci && opens(access_of(device->gpu, device->ci->gi)));
}

#if VARIANT >= OLD
API nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t handle, unsigned *current, unsigned *pending) {
    BEGIN(handle);
    REQUIRE(!device.ci && device.gpu->mig != MIG_UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    *current = device.gpu->mig == MIG_ON;
    *pending = device.gpu->mig_pending == MIG_ON;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t handle, unsigned *count) {
    BEGIN(handle);
    *count = device.gpu->mig == MIG_UNSUPPORTED ? 0 : (unsigned)device.gpu->mig_slots.value;
    miscounts(__func__, device.gpu->uuid, NULL, count, &(bool){false});
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t handle, unsigned slot, nvmlDevice_t *mig) {
    BEGIN(handle);
    REQUIRE(!device.ci, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(device.gpu->mig != MIG_UNSUPPORTED, NVML_ERROR_NOT_SUPPORTED);
    for (size_t i = 0; device.gpu->mig == MIG_ON && i < device.gpu->compute_count; i++)
        if (device.gpu->computes[i].slot == slot) {
            *mig = handle_of(device.gpu->uuid, (int)slot);
            return NVML_SUCCESS;
        }
    char code[64];
    bool other = device_switched("mig_empty_slot", &device, code, sizeof code);
    return other ? (nvmlReturn_t)atoi(code) : NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t handle, unsigned *is) {
    BEGIN(handle);
    *is = device.ci != NULL;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t handle, unsigned *id) {
    BEGIN(handle);
    REQUIRE(device.ci, NVML_ERROR_INVALID_ARGUMENT);
    *id = device.ci->gi;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t handle, unsigned *id) {
    BEGIN(handle);
    REQUIRE(device.ci, NVML_ERROR_INVALID_ARGUMENT);
    *id = device.ci->id;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t handle, nvmlDevice_t *gpu) {
    BEGIN(handle);
    REQUIRE(device.ci, NVML_ERROR_INVALID_ARGUMENT);
    *gpu = handle_of(device.gpu->uuid, -1);
    return NVML_SUCCESS;
}

struct attributes {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpeg, ofa, gi_slices, ci_slices;
    unsigned long long memory_mb;
};

API nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t handle, struct attributes *attributes) {
    BEGIN(handle);
    REQUIRE(device.ci, NVML_ERROR_NOT_SUPPORTED);
    const struct gpu_instance *gi = gpu_instance(device.gpu, device.ci->gi);
    REQUIRE(gi, NVML_ERROR_UNKNOWN);
    *attributes = (struct attributes){
        .multiprocessors = device.ci->sms,
        .copy_engines = 1,
        .gi_slices = gi->slices,
        .ci_slices = device.ci->slices,
        .memory_mb = gi->memory >> 20,
    };
    return NVML_SUCCESS;
}
#endif
