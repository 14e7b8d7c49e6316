/* Init and shutdown, error strings, versions of the driver. */
#define _GNU_SOURCE
#include "library.h"

#include <string.h>
#include <unistd.h>

static pthread_mutex_t guard = PTHREAD_MUTEX_INITIALIZER;
static int references;
static pid_t process; /* a forked child has to initialize again */

bool initialized(void) {
    pthread_mutex_lock(&guard);
    bool is = references > 0 && process == getpid();
    pthread_mutex_unlock(&guard);
    return is;
}

static nvmlReturn_t init(const char *function) {
    count_call(function);
    nvmlReturn_t fault = faults(function, NULL, NULL);
    REQUIRE(fault == NVML_SUCCESS, fault);
    const struct node *node = node_open();
    REQUIRE(node, NVML_ERROR_DRIVER_NOT_LOADED);
    node_close(node);
    pthread_mutex_lock(&guard);
    if (process != getpid())
        references = 0;
    process = getpid();
    references++;
    pthread_mutex_unlock(&guard);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlInit(void) { return init(__func__); }

API nvmlReturn_t nvmlInit_v2(void) { return init(__func__); }

API nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    return init(__func__);
}

API nvmlReturn_t nvmlShutdown(void) {
    count_call(__func__);
    REQUIRE(initialized(), NVML_ERROR_UNINITIALIZED);
    nvmlReturn_t fault = faults(__func__, NULL, NULL);
    REQUIRE(fault == NVML_SUCCESS, fault);
    pthread_mutex_lock(&guard);
    references--;
    pthread_mutex_unlock(&guard);
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t result) {
    static const char *const words[] = {
        [0] = "The operation was successful",
        [1] = "Uninitialized",
        [2] = "Invalid Argument",
        [3] = "Not Supported",
        [4] = "Insufficient Permissions",
        [5] = "Already Initialized",
        [6] = "Not Found",
        [7] = "Insufficient Size",
        [8] = "Insufficient External Power",
        [9] = "Driver Not Loaded",
        [10] = "Timeout",
        [11] = "Interrupt Request Issue",
        [12] = "NVML Shared Library Not Found",
        [13] = "Function Not Found",
        [14] = "Corrupted infoROM",
        [15] = "GPU is lost",
        [16] = "GPU requires restart",
        [17] = "The operating system has blocked the request",
        [18] = "RM has detected an NVML/RM version mismatch",
        [25] = "The input argument version is not supported",
        [28] = "GPU not found",
    };
    size_t index = (size_t)result;
    return index < sizeof words / sizeof *words && words[index] ? words[index] : "Unknown Error";
}

static nvmlReturn_t copy_out(const char *text, char *target, unsigned length) {
    REQUIRE(target, NVML_ERROR_INVALID_ARGUMENT);
    REQUIRE(strlen(text) < length, NVML_ERROR_INSUFFICIENT_SIZE);
    strcpy(target, text);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    BEGIN_NODE();
    return copy_out(node->driver, version, length);
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    BEGIN_NODE();
    return copy_out(node->nvml, version, length);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    BEGIN_NODE();
    *version = node->cuda;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    BEGIN_NODE();
    *version = node->cuda;
    return NVML_SUCCESS;
}
