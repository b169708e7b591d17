/*
 * A stand-in for libnvidia-ml.so.1 that says what a scenario file says. The real nvidia-ml-py loads it through
 * LD_LIBRARY_PATH; the variable NVML_STANDIN_SCENARIO names the file. It is read again once it was replaced, so that a
 * test can change it meanwhile (by a rename: a call sees one scenario or the other).
 *
 * A line of the file is `key = value`; `#` begins a comment, the first line of a key holds.
 *
 *   driver, cuda, devices        driver version; CUDA version (13000 is 13.0); how many devices there are
 *   init, init.hang              what nvmlInit returns; 1: it does not return
 *   began                        seconds since the epoch at which the scenario began; without it, when the file was written
 *   calls                        a file that gets a line for every call about a device: `gpu<N>.<call>`
 *   <what>                       a figure of every device: name, uuid, minor, memory.total, memory.used,
 *                                memory.reserved, utilization, utilization.memory, power (mW), power.limit (mW),
 *                                temperature, clock (MHz), throttle (bits), processes (pid:bytes, ...)
 *   <what> of newer drivers      the call is not supported where there is no such line: temperature.margin,
 *                                clock.memory (MHz), energy (mJ), pcie.tx, pcie.rx (bytes), pcie.type (of these two
 *                                figures, 3), pcie.generation, pcie.generation.max, pcie.width, pcie.width.max,
 *                                pcie.replays, ecc.corrected, ecc.uncorrected, rows.corrected, rows.uncorrected,
 *                                rows.pending, rows.failed, recovery, nvlinks, nvlink.tx, nvlink.rx (KiB), p2p,
 *                                ancestor (of two devices of the same four), ancestor.far
 *   xid, double_bit              a change to another figure but 0 is an event of this XID, or a double bit error
 *   <call>.error, error          the code that this call, or every call, about a device returns
 *   <call>.hang, hang            1: the call does not return before the file says otherwise
 *   <call>.abort                 1: the call ends the process
 *   gpu<N>.<any of these>        the same for one device; it goes before the line for all
 *
 * A figure is a number or moves with the seconds t since the scenario began:
 *
 *   A ~ B / P                    A + B sin(2 pi t / P), each device at another place of the wave
 *   A + R/s                      A + R t
 *   after S: key = value         from S seconds on; it goes before the lines of the key that began earlier
 *
 * A new call is a function of three lines: `begin` it under its name, then put the figures in.
 */

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NO_PERMISSION = 4,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    TIMEOUT = 10,
    LIBRARY_NOT_FOUND = 12,
    FUNCTION_NOT_FOUND = 13,
    GPU_IS_LOST = 15,
    RESET_REQUIRED = 16,
    LIB_RM_VERSION_MISMATCH = 18,
    UNKNOWN = 999,
};

enum { LINE = 4096, KEY = 128, MOST_DEVICES = 64, MOST_ENTRIES = 512 };

typedef struct {
    unsigned index;
} device_t;

static device_t devices[MOST_DEVICES];

/* A line of the scenario: the figure is base + amplitude sin(2 pi t / period) + rate t, from `after` on. */
typedef struct {
    unsigned hash;
    char key[KEY];
    char *text;
    int is_whole;
    unsigned long long whole;
    double base, amplitude, period, rate, after;
} entry_t;

static struct {
    pthread_mutex_t lock;
    struct stat seen;
    double began;
    int has_hang, has_error, has_abort, has_calls;
    int count;
    entry_t entries[MOST_ENTRIES];
} scenario = {.lock = PTHREAD_MUTEX_INITIALIZER};

static unsigned hash_of(const char *text) {
    unsigned hash = 2166136261u;
    while (*text) hash = (hash ^ (unsigned char)*text++) * 16777619u;
    return hash;
}

static char *trim(char *text) {
    while (*text == ' ' || *text == '\t') text++;
    char *end = text + strlen(text);
    while (end > text && strchr(" \t\r\n", end[-1])) *--end = '\0';
    return text;
}

static int ends_with(const char *text, const char *end) {
    size_t length = strlen(text), wanted = strlen(end);
    return length >= wanted && strcmp(text + length - wanted, end) == 0;
}

/* `after S:` before a key; what is left of the line. */
static char *take_after(char *line, double *after) {
    int used = 0;
    *after = 0;
    if (sscanf(line, " after %lf :%n", after, &used) == 1 && used) return line + used;
    return line;
}

static void understand(entry_t *entry) {
    char *end;
    entry->whole = strtoull(entry->text, &end, 0);
    entry->is_whole = end != entry->text && *end == '\0';
    if (sscanf(entry->text, "%lf ~ %lf / %lf", &entry->base, &entry->amplitude, &entry->period) == 3) return;
    entry->amplitude = 0;
    entry->period = 1;
    if (sscanf(entry->text, "%lf + %lf /s", &entry->base, &entry->rate) < 2) entry->rate = 0;
}

static void add_line(char *line) {
    char *comment = strchr(line, '#');
    if (comment) *comment = '\0';
    double after;
    line = take_after(line, &after);
    char *equals = strchr(line, '=');
    if (!equals || scenario.count == MOST_ENTRIES) return;
    *equals = '\0';
    entry_t *entry = &scenario.entries[scenario.count++];
    *entry = (entry_t){.after = after, .text = strdup(trim(equals + 1))};
    snprintf(entry->key, sizeof entry->key, "%s", trim(line));
    entry->hash = hash_of(entry->key);
    understand(entry);
    scenario.has_hang |= ends_with(entry->key, "hang");
    scenario.has_error |= ends_with(entry->key, "error");
    scenario.has_abort |= ends_with(entry->key, "abort");
    scenario.has_calls |= strcmp(entry->key, "calls") == 0;
}

static void load(const char *path) {
    for (int i = 0; i < scenario.count; i++) free(scenario.entries[i].text);
    scenario.count = scenario.has_hang = scenario.has_error = scenario.has_abort = scenario.has_calls = 0;
    FILE *file = fopen(path, "re");
    if (!file) return;
    fstat(fileno(file), &scenario.seen);
    scenario.began = (double)scenario.seen.st_mtim.tv_sec + scenario.seen.st_mtim.tv_nsec * 1e-9;
    char line[LINE];
    while (fgets(line, sizeof line, file)) add_line(line);
    fclose(file);
    for (int i = scenario.count - 1; i >= 0; i--)
        if (strcmp(scenario.entries[i].key, "began") == 0) scenario.began = scenario.entries[i].base;
}

/* With the lock held: the scenario is that of the file as it is now. */
static void refresh(void) {
    const char *path = getenv("NVML_STANDIN_SCENARIO");
    struct stat now;
    if (!path || stat(path, &now)) {
        scenario.count = 0;
        scenario.seen.st_ino = 0;
        return;
    }
    if (now.st_ino == scenario.seen.st_ino && now.st_dev == scenario.seen.st_dev && now.st_size == scenario.seen.st_size &&
        now.st_mtim.tv_sec == scenario.seen.st_mtim.tv_sec && now.st_mtim.tv_nsec == scenario.seen.st_mtim.tv_nsec)
        return;
    load(path);
}

static double elapsed(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + now.tv_nsec * 1e-9 - scenario.began;
}

/* With the lock held: the line of exactly `key` that holds now; NULL when there is none. */
static const entry_t *line_of(const char *key) {
    unsigned hash = hash_of(key);
    const entry_t *found = NULL;
    for (int i = 0; i < scenario.count; i++) {
        const entry_t *entry = &scenario.entries[i];
        if (entry->hash != hash || strcmp(entry->key, key)) continue;
        if (found ? entry->after <= found->after : 0) continue;
        if (entry->after > 0 && entry->after > elapsed()) continue;
        found = entry;
    }
    return found;
}

/* With the lock held: the line about `what` of a device, its own before that for all; `device` may be NULL. */
static const entry_t *line_about(const device_t *device, const char *what) {
    if (!device) return line_of(what);
    char key[KEY];
    snprintf(key, sizeof key, "gpu%u.%s", device->index, what);
    const entry_t *own = line_of(key);
    return own ? own : line_of(what);
}

static int find_of(const device_t *device, const char *what, char *value, size_t size) {
    pthread_mutex_lock(&scenario.lock);
    refresh();
    const entry_t *entry = line_about(device, what);
    if (entry) snprintf(value, size, "%s", entry->text);
    pthread_mutex_unlock(&scenario.lock);
    return entry != NULL;
}

static int find(const char *key, char *value, size_t size) { return find_of(NULL, key, value, size); }

static double figure(const device_t *device, const entry_t *entry) {
    double t = elapsed(), place = device ? device->index * 0.8 : 0;
    double value = entry->base + entry->rate * t;
    if (entry->amplitude != 0) value += entry->amplitude * sin(2 * M_PI * t / entry->period + place);
    return value > 0 ? value : 0;
}

/* The figure of `what`; 0 when there is no line. */
static int look_up(const device_t *device, const char *what, unsigned long long *out) {
    pthread_mutex_lock(&scenario.lock);
    const entry_t *entry = line_about(device, what);
    if (entry) *out = entry->is_whole ? entry->whole : (unsigned long long)figure(device, entry);
    pthread_mutex_unlock(&scenario.lock);
    return entry != NULL;
}

static unsigned long long number_of(const device_t *device, const char *what, unsigned long long otherwise) {
    unsigned long long value;
    return look_up(device, what, &value) ? value : otherwise;
}

static void read_scenario(void) {
    pthread_mutex_lock(&scenario.lock);
    refresh();
    pthread_mutex_unlock(&scenario.lock);
}

static unsigned long long number(const char *key, unsigned long long otherwise) {
    read_scenario();
    return number_of(NULL, key, otherwise);
}

static void doze(long milliseconds) { nanosleep(&(struct timespec){0, milliseconds * 1000 * 1000}, NULL); }

static unsigned long long number_of_call(const device_t *device, const char *call, const char *what) {
    char key[KEY];
    snprintf(key, sizeof key, "%s.%s", call, what);
    return number_of(device, key, 0);
}

static int is_hanging(const device_t *device, const char *call) {
    read_scenario();
    return scenario.has_hang && (number_of_call(device, call, "hang") || number_of(device, "hang", 0));
}

static void note_call(const device_t *device, const char *call) {
    char path[LINE];
    if (!find("calls", path, sizeof path)) return;
    FILE *file = fopen(path, "ae");
    if (!file) return;
    fprintf(file, "gpu%u.%s\n", device->index, call);
    fclose(file);
}

/* What every call about a device does first: hang, fail or end everything as the scenario has it. */
static int begin(const device_t *device, const char *call) {
    if (device < devices || device >= devices + MOST_DEVICES) return INVALID_ARGUMENT;
    if (is_hanging(device, call)) {
        while (is_hanging(device, call)) doze(20);
    }
    if (scenario.has_calls) note_call(device, call);
    if (scenario.has_abort && number_of_call(device, call, "abort")) abort();
    if (!scenario.has_error) return SUCCESS;
    int code = (int)number_of_call(device, call, "error");
    return code ? code : (int)number_of(device, "error", SUCCESS);
}

static int tell(const device_t *device, const char *what, unsigned *out) {
    int code = begin(device, what);
    if (code == SUCCESS) *out = (unsigned)number_of(device, what, 0);
    return code;
}

/* What older devices do not have. */
static int tell_wide(const device_t *device, const char *what, unsigned long long *out) {
    int code = begin(device, what);
    if (code) return code;
    return look_up(device, what, out) ? SUCCESS : NOT_SUPPORTED;
}

static int tell_newer(const device_t *device, const char *what, unsigned *out) {
    unsigned long long value = 0;
    int code = tell_wide(device, what, &value);
    *out = (unsigned)value;
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
    while (number("init.hang", 0)) doze(20);
    /* Without a scenario there is no number of devices. */
    return (int)number("init", number("devices", MOST_DEVICES + 1) > MOST_DEVICES ? UNKNOWN : SUCCESS);
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
        case SUCCESS: return "Success";
        case INVALID_ARGUMENT: return "Invalid Argument";
        case NOT_SUPPORTED: return "Not Supported";
        case NO_PERMISSION: return "Insufficient Permissions";
        case INSUFFICIENT_SIZE: return "Insufficient Size";
        case DRIVER_NOT_LOADED: return "Driver Not Loaded";
        case TIMEOUT: return "Timeout";
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

int nvmlSystemGetCudaDriverVersion(int *out) {
    *out = (int)number("cuda", 13000);
    return SUCCESS;
}

int nvmlSystemGetCudaDriverVersion_v2(int *out) { return nvmlSystemGetCudaDriverVersion(out); }

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
    char legacy_bus_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_id[32];
} pci_t;

/* Device N is at bus 0x10 + 0x10 N. */
int nvmlDeviceGetPciInfo_v3(device_t *device, pci_t *out) {
    int code = begin(device, "pci");
    if (code) return code;
    *out = (pci_t){.domain = 0, .bus = 0x10 + 0x10 * device->index, .device_id = 0x2bb510de};
    snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "0000:%02X:00.0", out->bus);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", out->bus);
    return SUCCESS;
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

int nvmlDeviceGetTotalEnergyConsumption(device_t *device, unsigned long long *out) {
    return tell_wide(device, "energy", out);
}

int nvmlDeviceGetTemperature(device_t *device, unsigned sensor, unsigned *out) {
    (void)sensor;
    return tell(device, "temperature", out);
}

typedef struct {
    unsigned version, sensor;
    int temperature;
} temperature_t;

int nvmlDeviceGetTemperatureV(device_t *device, temperature_t *out) {
    unsigned value = 0;
    int code = tell(device, "temperature", &value);
    out->temperature = (int)value;
    return code;
}

typedef struct {
    unsigned version;
    int margin;
} margin_t;

int nvmlDeviceGetMarginTemperature(device_t *device, margin_t *out) {
    unsigned value = 0;
    if (out->version != (sizeof *out | 1u << 24)) return INVALID_ARGUMENT;
    int code = tell_newer(device, "temperature.margin", &value);
    out->margin = (int)value;
    return code;
}

enum { CLOCK_OF_MEMORY = 2 };

int nvmlDeviceGetClockInfo(device_t *device, unsigned type, unsigned *out) {
    return type == CLOCK_OF_MEMORY ? tell_newer(device, "clock.memory", out) : tell(device, "clock", out);
}

int nvmlDeviceGetCurrentClocksEventReasons(device_t *device, unsigned long long *out) {
    int code = begin(device, "throttle");
    if (code == SUCCESS) *out = number_of(device, "throttle", 0);
    return code;
}

int nvmlDeviceGetCurrPcieLinkGeneration(device_t *device, unsigned *out) {
    return tell_newer(device, "pcie.generation", out);
}

int nvmlDeviceGetMaxPcieLinkGeneration(device_t *device, unsigned *out) {
    return tell_newer(device, "pcie.generation.max", out);
}

int nvmlDeviceGetCurrPcieLinkWidth(device_t *device, unsigned *out) { return tell_newer(device, "pcie.width", out); }

int nvmlDeviceGetMaxPcieLinkWidth(device_t *device, unsigned *out) { return tell_newer(device, "pcie.width.max", out); }

int nvmlDeviceGetPcieReplayCounter(device_t *device, unsigned *out) { return tell_newer(device, "pcie.replays", out); }

/* As in the real one, two samples of 20 ms each; nothing that hurries may call it. */
int nvmlDeviceGetPcieThroughput(device_t *device, unsigned direction, unsigned *out) {
    (void)direction;
    int code = begin(device, "pcie.throughput");
    doze(20);
    *out = 0;
    return code;
}

int nvmlDeviceGetTotalEccErrors(device_t *device, unsigned kind, unsigned counter, unsigned long long *out) {
    (void)counter;
    return tell_wide(device, kind ? "ecc.uncorrected" : "ecc.corrected", out);
}

int nvmlDeviceGetRemappedRows(device_t *device, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    int code = tell_newer(device, "rows.corrected", corrected);
    if (code) return code;
    *uncorrected = (unsigned)number_of(device, "rows.uncorrected", 0);
    *pending = (unsigned)number_of(device, "rows.pending", 0);
    *failed = (unsigned)number_of(device, "rows.failed", 0);
    return SUCCESS;
}

int nvmlDeviceGetNvLinkState(device_t *device, unsigned link, unsigned *is_active) {
    unsigned links = 0;
    int code = tell_newer(device, "nvlinks", &links);
    if (code) return code;
    if (link >= 18) return INVALID_ARGUMENT;
    *is_active = link < links;
    return SUCCESS;
}

typedef struct {
    unsigned id, scope;
    long long at, took;
    unsigned type;
    int code;
    union {
        double real;
        unsigned whole;
        unsigned long long wide;
    } value;
} field_t;

enum { TYPE_UNSIGNED = 1, TYPE_WIDE = 3 };

static const struct {
    unsigned id, type;
    const char *what;
} fields[] = {
    {138, TYPE_WIDE, "nvlink.tx"}, {139, TYPE_WIDE, "nvlink.rx"},   {197, TYPE_WIDE, "pcie.tx"},
    {198, TYPE_WIDE, "pcie.rx"},   {230, TYPE_UNSIGNED, "recovery"},
};

static int tell_field(const device_t *device, field_t *field) {
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
        if (fields[i].id != field->id) continue;
        unsigned long long value;
        int code = scenario.has_error ? (int)number_of_call(device, fields[i].what, "error") : SUCCESS;
        if (code) return code;
        if (!look_up(device, fields[i].what, &value)) return NOT_SUPPORTED;
        field->type = strncmp(fields[i].what, "pcie", 4) ? fields[i].type : (unsigned)number_of(device, "pcie.type", TYPE_WIDE);
        field->value.wide = 0;
        if (field->type == TYPE_UNSIGNED)
            field->value.whole = (unsigned)value;
        else
            field->value.wide = value;
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

int nvmlDeviceGetFieldValues(device_t *device, int count, field_t *out) {
    int code = begin(device, "fields");
    if (code) return code;
    for (int i = 0; i < count; i++) out[i].code = tell_field(device, &out[i]);
    return SUCCESS;
}

int nvmlDeviceGetTopologyCommonAncestor(device_t *first, device_t *second, unsigned *level) {
    int code = begin(first, "ancestor");
    if (code) return code;
    *level = (unsigned)number_of(first, first->index / 4 == second->index / 4 ? "ancestor" : "ancestor.far", 50);
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(device_t *first, device_t *second, unsigned which, unsigned *status) {
    (void)second;
    (void)which;
    return tell_newer(first, "p2p", status);
}

typedef struct {
    unsigned long long types[MOST_DEVICES];
    unsigned long long xid[MOST_DEVICES], double_bit[MOST_DEVICES];
} event_set_t;

typedef struct {
    device_t *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} event_t;

enum { DOUBLE_BIT_ERROR = 0x2, XID_ERROR = 0x8 };

int nvmlEventSetCreate(event_set_t **set) {
    *set = calloc(1, sizeof **set);
    return SUCCESS;
}

int nvmlEventSetFree(event_set_t *set) {
    free(set);
    return SUCCESS;
}

int nvmlDeviceGetSupportedEventTypes(device_t *device, unsigned long long *types) {
    *types = DOUBLE_BIT_ERROR | XID_ERROR;
    return begin(device, "events");
}

int nvmlDeviceRegisterEvents(device_t *device, unsigned long long types, event_set_t *set) {
    int code = begin(device, "events");
    if (code) return code;
    set->types[device->index] = types;
    set->xid[device->index] = number_of(device, "xid", 0);
    set->double_bit[device->index] = number_of(device, "double_bit", 0);
    return SUCCESS;
}

/* Whether the figure went over to another one that is an event. */
static int has_happened(unsigned long long now, unsigned long long *before) {
    int happened = now && now != *before;
    *before = now;
    return happened;
}

static int next_event(event_set_t *set, event_t *out) {
    for (unsigned index = 0; index < MOST_DEVICES; index++) {
        device_t *device = &devices[index];
        if (!set->types[index]) continue;
        if (has_happened(number_of(device, "xid", 0), &set->xid[index])) {
            *out = (event_t){device, XID_ERROR, set->xid[index], ~0u, ~0u};
            return 1;
        }
        if (has_happened(number_of(device, "double_bit", 0), &set->double_bit[index])) {
            *out = (event_t){device, DOUBLE_BIT_ERROR, 0, ~0u, ~0u};
            return 1;
        }
    }
    return 0;
}

int nvmlEventSetWait_v2(event_set_t *set, event_t *out, unsigned timeout_ms) {
    for (unsigned waited = 0;; waited += 100) {
        read_scenario();
        if (next_event(set, out)) return SUCCESS;
        if (waited >= timeout_ms) return TIMEOUT;
        doze(100);
    }
}

typedef struct {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} process_t;

/* `processes = pid:bytes, pid:bytes`; as in the real one a call without room answers how many there are. */
/* What the monitors that Roost is measured beside ask for: a server's card without fans, codecs and displays at work. */

int nvmlDeviceGetPowerManagementLimit(device_t *device, unsigned *out) { return tell(device, "power.limit", out); }

int nvmlDeviceGetMaxClockInfo(device_t *device, unsigned type, unsigned *out) {
    (void)type;
    return tell_newer(device, "clock.max", out);
}

int nvmlDeviceGetFanSpeed(device_t *device, unsigned *out) { return tell_newer(device, "fan", out); }

static int tell_codec(const device_t *device, unsigned *out, unsigned *period_us) {
    *period_us = 167000;
    return tell(device, "codec", out);
}

int nvmlDeviceGetEncoderUtilization(device_t *device, unsigned *out, unsigned *period_us) {
    return tell_codec(device, out, period_us);
}

int nvmlDeviceGetDecoderUtilization(device_t *device, unsigned *out, unsigned *period_us) {
    return tell_codec(device, out, period_us);
}

int nvmlDeviceGetDisplayActive(device_t *device, unsigned *out) { return tell(device, "display", out); }

int nvmlDeviceGetDisplayMode(device_t *device, unsigned *out) { return tell(device, "display", out); }

int nvmlDeviceGetPersistenceMode(device_t *device, unsigned *out) { return tell(device, "persistence", out); }

int nvmlDeviceGetPerformanceState(device_t *device, unsigned *out) { return tell(device, "performance", out); }

int nvmlDeviceGetComputeMode(device_t *device, unsigned *out) { return tell(device, "compute.mode", out); }

int nvmlDeviceGetCudaComputeCapability(device_t *device, int *major, int *minor) {
    *major = 12;
    *minor = 0;
    return begin(device, "capability");
}

/* Windows only. */
int nvmlDeviceGetDriverModel(device_t *device, unsigned *current, unsigned *pending) {
    (void)device, (void)current, (void)pending;
    return NOT_SUPPORTED;
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *device, unsigned *count, process_t *out) {
    (void)out;
    *count = 0;
    return begin(device, "graphics");
}

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
