/*
 * A stand-in for libnvidia-ml.so.1 that says what a scenario file says. The real nvidia-ml-py loads it through
 * LD_LIBRARY_PATH; the variable NVML_STANDIN_SCENARIO names the file, which every call reads anew, so that a test can
 * change it meanwhile (by a rename: a call sees one scenario or the other).
 *
 * A line of the file is `key = value`; `#` begins a comment, the first line of a key holds.
 *
 *   driver, devices              driver version; how many devices there are
 *   init, init.hang              what nvmlInit returns; 1: it does not return
 *   <what>                       a figure of every device: name, uuid, minor, memory.total, memory.used,
 *                                memory.reserved, utilization, utilization.memory, power (mW), power.limit (mW),
 *                                temperature, clock (MHz), throttle (bits), processes (pid:bytes, ...)
 *   <call>.error, error          the code that this call, or every call, about a device returns
 *   <call>.hang, hang            1: the call does not return before the file says otherwise
 *   gpu<N>.<any of these>        the same for one device; it goes before the line for all
 *
 * A new call is a function of three lines: `begin` it under its name, then put the figures in.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    LIBRARY_NOT_FOUND = 12,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    LIB_RM_VERSION_MISMATCH = 18,
    UNKNOWN = 999,
};

enum { LINE = 4096, KEY = 128, MOST_DEVICES = 64 };

typedef struct {
    unsigned index;
} device_t;

static device_t devices[MOST_DEVICES];

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = '\0';
    return text;
}

/* The value of exactly `key`; 0 when the file or the key is not there. */
static int find(const char *key, char *value, size_t size) {
    const char *path = getenv("NVML_STANDIN_SCENARIO");
    FILE *file = path ? fopen(path, "re") : NULL;
    if (!file) return 0;
    char line[LINE];
    int found = 0;
    while (!found && fgets(line, sizeof line, file)) {
        char *comment = strchr(line, '#');
        if (comment) *comment = '\0';
        char *equals = strchr(line, '=');
        if (!equals) continue;
        *equals = '\0';
        if (strcmp(trim(line), key) == 0) {
            snprintf(value, size, "%s", trim(equals + 1));
            found = 1;
        }
    }
    fclose(file);
    return found;
}

/* The value of `what` of a device: its own line, else the line for all. */
static int find_of(const device_t *device, const char *what, char *value, size_t size) {
    char key[KEY];
    snprintf(key, sizeof key, "gpu%u.%s", device->index, what);
    return find(key, value, size) || find(what, value, size);
}

static unsigned long long number(const char *key, unsigned long long otherwise) {
    char value[LINE];
    return find(key, value, sizeof value) && *value ? strtoull(value, NULL, 0) : otherwise;
}

static unsigned long long number_of(const device_t *device, const char *what, unsigned long long otherwise) {
    char value[LINE];
    return find_of(device, what, value, sizeof value) && *value ? strtoull(value, NULL, 0) : otherwise;
}

static void doze(void) { nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL); }

static int is_hanging(const device_t *device, const char *call) {
    char key[KEY];
    snprintf(key, sizeof key, "%s.hang", call);
    return number_of(device, key, 0) || number_of(device, "hang", 0);
}

/* What every call about a device does first: hang or fail as the scenario has it. */
static int begin(const device_t *device, const char *call) {
    if (device < devices || device >= devices + MOST_DEVICES) return INVALID_ARGUMENT;
    while (is_hanging(device, call)) doze();
    char key[KEY];
    snprintf(key, sizeof key, "%s.error", call);
    return (int)number_of(device, key, number_of(device, "error", SUCCESS));
}

static int tell(const device_t *device, const char *what, unsigned *out) {
    int code = begin(device, what);
    if (code == SUCCESS) *out = (unsigned)number_of(device, what, 0);
    return code;
}

static int put(const char *text, char *out, unsigned size) {
    if (strlen(text) >= size) return INSUFFICIENT_SIZE;
    strcpy(out, text);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    for (unsigned index = 0; index < MOST_DEVICES; index++) devices[index].index = index;
    while (number("init.hang", 0)) doze();
    /* Without a scenario there is no number of devices. */
    return (int)number("init", number("devices", MOST_DEVICES + 1) > MOST_DEVICES ? UNKNOWN : SUCCESS);
}

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case NO_PERMISSION: return "Insufficient Permissions";
        case INSUFFICIENT_SIZE: return "Insufficient Size";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case LIBRARY_NOT_FOUND: return "NVML Shared Library Not Found";
        case FUNCTION_NOT_FOUND: return "Function Not Found";
        case GPU_IS_LOST: return "GPU is lost";
        case RESET_REQUIRED: return "GPU requires reset";
        case LIB_RM_VERSION_MISMATCH: return "Driver/library version mismatch";
        default: return "Unknown Error";
    }
}

int nvmlSystemGetDriverVersion(char *out, unsigned size) {
    char value[LINE];
    return put(find("driver", value, sizeof value) ? value : "0", out, size);
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = (unsigned)number("devices", 0);
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **device) {
    if (index >= number("devices", 0)) return INVALID_ARGUMENT;
    *device = &devices[index];
    return begin(*device, "handle");
}

int nvmlDeviceGetName(device_t *device, char *out, unsigned size) {
    char value[LINE];
    int code = begin(device, "name");
    return code ? code : put(find_of(device, "name", value, sizeof value) ? value : "device", out, size);
}

int nvmlDeviceGetUUID(device_t *device, char *out, unsigned size) {
    char value[LINE];
    int code = begin(device, "uuid");
    if (code) return code;
    if (!find_of(device, "uuid", value, sizeof value))
        snprintf(value, sizeof value, "GPU-00000000-0000-0000-0000-%012u", device->index);
    return put(value, out, size);
}

int nvmlDeviceGetMinorNumber(device_t *device, unsigned *out) {
    int code = begin(device, "minor");
    if (code == SUCCESS) *out = (unsigned)number_of(device, "minor", device->index);
    return code;
}

typedef struct {
    unsigned long long total, free, used;
} memory_t;

/* The old call counts what the driver reserves as used. */
int nvmlDeviceGetMemoryInfo(device_t *device, memory_t *out) {
    int code = begin(device, "memory.v1");
    if (code) return code;
    out->total = number_of(device, "memory.total", 0);
    out->used = number_of(device, "memory.used", 0) + number_of(device, "memory.reserved", 0);
    out->free = out->total - out->used;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;

int nvmlDeviceGetMemoryInfo_v2(device_t *device, memory_v2_t *out) {
    int code = begin(device, "memory");
    if (code) return code;
    if (out->version != (sizeof *out | 2u << 24)) return INVALID_ARGUMENT;
    out->total = number_of(device, "memory.total", 0);
    out->used = number_of(device, "memory.used", 0);
    out->reserved = number_of(device, "memory.reserved", 0);
    out->free = out->total - out->used - out->reserved;
    return SUCCESS;
}

typedef struct {
    unsigned gpu, memory;
} utilization_t;

int nvmlDeviceGetUtilizationRates(device_t *device, utilization_t *out) {
    int code = tell(device, "utilization", &out->gpu);
    if (code == SUCCESS) out->memory = (unsigned)number_of(device, "utilization.memory", 0);
    return code;
}

int nvmlDeviceGetPowerUsage(device_t *device, unsigned *out) { return tell(device, "power", out); }

int nvmlDeviceGetEnforcedPowerLimit(device_t *device, unsigned *out) { return tell(device, "power.limit", out); }

int nvmlDeviceGetTemperature(device_t *device, unsigned sensor, unsigned *out) {
    (void)sensor;
    return tell(device, "temperature", out);
}

int nvmlDeviceGetClockInfo(device_t *device, unsigned type, unsigned *out) {
    (void)type;
    return tell(device, "clock", out);
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *out) {
    int code = begin(device, "throttle");
    if (code == SUCCESS) *out = number_of(device, "throttle", 0);
    return code;
}

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_t;

/* `processes = pid:bytes, pid:bytes`; as in the real one a call without room answers how many there are. */
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *device, unsigned *count, process_t *out) {
    int code = begin(device, "processes");
    if (code) return code;
    char value[LINE];
    if (!find_of(device, "processes", value, sizeof value)) *value = '\0';
    unsigned room = out ? *count : 0, found = 0;
    char *rest = value, *entry;
    while ((entry = strsep(&rest, ","))) {
        unsigned pid;
        unsigned long long used = 0;
        if (sscanf(entry, " %u : %llu", &pid, &used) < 1) continue;
        if (found < room) out[found] = (process_t){pid, used, ~0u, ~0u};
        found++;
    }
    *count = found;
    return found > room ? INSUFFICIENT_SIZE : SUCCESS;
}
