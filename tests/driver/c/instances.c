/* MIG as those see it who cut a GPU up: its instances, and the profiles that they were made after.
 *
 * NVIDIA's container toolkit asks its way from a MIG device to its profile, by go-nvlib. The numbers are those of an A100
 * (nvidia-smi mig -lgip, -lcip); an instance is known by its slices alone, so that 1g.10gb has the profile of 1g.5gb. */
#define _GNU_SOURCE
#include "library.h"

#include <unistd.h>

#if VARIANT >= OLD
#define GPU_INSTANCE_PROFILES 18 /* of nvml.h, API 13; most of them no GPU has */
#define COMPUTE_INSTANCE_PROFILES 9

/* By the number that asks for it. */
static const struct profile {
    unsigned slices, of_gpu, of_compute;
} profiles[] = {{1, 19, 0}, {2, 14, 1}, {3, 9, 2}, {4, 5, 3}, {7, 0, 4}};

#define PROFILES (sizeof profiles / sizeof *profiles)

/* A GPU instance is a handle beyond all slots of its GPU; a compute instance is its MIG device. */
static nvmlDevice_t instance_handle(const struct gpu *gpu, unsigned id) { return handle_of(gpu->uuid, -2 - (int)id); }

static const struct gpu_instance *instance_of(nvmlDevice_t handle, const struct device *device) {
    return handle->slot < -1 ? gpu_instance(device->gpu, (unsigned)(-2 - handle->slot)) : NULL;
}

static const struct profile *profile_of(unsigned slices) {
    for (size_t i = 0; i < PROFILES; i++)
        if (profiles[i].slices == slices)
            return &profiles[i];
    return NULL;
}

struct placement {
    unsigned start, size;
};

API nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t handle, unsigned id, nvmlDevice_t *instance) {
    BEGIN(handle);
    REQUIRE(!device.ci, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(device.gpu->mig == MIG_ON, NVML_ERROR_NOT_SUPPORTED);
    REQUIRE(geteuid() == 0, NVML_ERROR_NO_PERMISSION);
    REQUIRE(gpu_instance(device.gpu, id), NVML_ERROR_NOT_FOUND);
    *instance = instance_handle(device.gpu, id);
    return NVML_SUCCESS;
}

struct gpu_instance_info {
    nvmlDevice_t gpu;
    unsigned id, profile;
    struct placement placement;
};

API nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlDevice_t handle, struct gpu_instance_info *info) {
    BEGIN(handle);
    const struct gpu_instance *gi = instance_of(handle, &device);
    const struct profile *profile = gi ? profile_of(gi->slices) : NULL;
    REQUIRE(profile, NVML_ERROR_INVALID_ARGUMENT);
    *info = (struct gpu_instance_info){handle_of(device.gpu->uuid, -1), gi->id, profile->of_gpu, {0, gi->slices}};
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlDevice_t handle, unsigned id, nvmlDevice_t *instance) {
    BEGIN(handle);
    const struct gpu_instance *gi = instance_of(handle, &device);
    REQUIRE(gi, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(geteuid() == 0, NVML_ERROR_NO_PERMISSION);
    for (size_t i = 0; i < device.gpu->compute_count; i++) {
        const struct compute_instance *ci = &device.gpu->computes[i];
        if (ci->gi == gi->id && ci->id == id) {
            *instance = handle_of(device.gpu->uuid, (int)ci->slot);
            return NVML_SUCCESS;
        }
    }
    return NVML_ERROR_NOT_FOUND;
}

struct compute_instance_info {
    nvmlDevice_t gpu, instance;
    unsigned id, profile;
    struct placement placement;
};

API nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlDevice_t handle, struct compute_instance_info *info) {
    BEGIN(handle);
    const struct compute_instance *ci = device.ci;
    const struct profile *profile = ci ? profile_of(ci->slices) : NULL;
    REQUIRE(profile, NVML_ERROR_INVALID_ARGUMENT);
    *info = (struct compute_instance_info){handle_of(device.gpu->uuid, -1), instance_handle(device.gpu, ci->gi), ci->id,
                                           profile->of_compute, {0, ci->slices}};
    return NVML_SUCCESS;
}

struct gpu_instance_profile {
    unsigned id, peer_to_peer, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
    unsigned long long memory_mb;
};

API nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t handle, unsigned number,
                                                     struct gpu_instance_profile *info) {
    BEGIN(handle);
    REQUIRE(number < GPU_INSTANCE_PROFILES, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(!device.ci && device.gpu->mig != MIG_UNSUPPORTED && number < PROFILES, NVML_ERROR_NOT_SUPPORTED);
    const struct profile *profile = &profiles[number];
    *info = (struct gpu_instance_profile){
        .id = profile->of_gpu,
        .slices = profile->slices,
        .instances = 7 / profile->slices,
        .multiprocessors = 14 * profile->slices,
        .copy_engines = profile->slices,
        .memory_mb = (device.gpu->total.value >> 20) * profile->slices / 8,
    };
    return NVML_SUCCESS;
}

struct compute_instance_profile {
    unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpeg, ofa;
};

API nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlDevice_t handle, unsigned number, unsigned engines,
                                                              struct compute_instance_profile *info) {
    BEGIN(handle);
    const struct gpu_instance *gi = instance_of(handle, &device);
    REQUIRE(gi && number < COMPUTE_INSTANCE_PROFILES && engines == 0, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(number < PROFILES && profiles[number].slices <= gi->slices, NVML_ERROR_NOT_SUPPORTED);
    const struct profile *profile = &profiles[number];
    *info = (struct compute_instance_profile){
        .id = profile->of_compute,
        .slices = profile->slices,
        .instances = gi->slices / profile->slices,
        .multiprocessors = 14 * profile->slices,
        .copy_engines = gi->slices,
    };
    return NVML_SUCCESS;
}
#endif
