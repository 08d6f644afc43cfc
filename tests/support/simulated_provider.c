// A simulated plug-in execution provider of ONNX Runtime, which takes Relu on a device that is this CPU.
//
// While the environment has PROVIDER_LEAVES, it leaves Relu to whoever else takes it, as a driver of another version may.
// Only the parts of ONNX Runtime's interface that it needs are declared, by their places, which never change.

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef void *Status;  // NULL is success.
typedef void (*Function)(void);

enum { API_VERSION = 23, MOST_NODES = 256, EP_MEMBERS = 64 };

// Places in OrtApi, and in OrtEpApi.
enum {
  TENSOR_MUTABLE_DATA = 51,
  DIMENSIONS_COUNT = 61,
  DIMENSIONS = 62,
  SHAPE_ELEMENT_COUNT = 64,
  TENSOR_TYPE_AND_SHAPE = 65,
  CONTEXT_INPUT = 90,
  CONTEXT_OUTPUT = 91,
  RELEASE_SHAPE = 99,
  HARDWARE_TYPE = 307,
  EP_API = 317,
  GRAPH_NODE_COUNT = 344,
  GRAPH_NODES = 345,
  NODE_OPERATOR = 350,
};
enum { CREATE_EP_DEVICE = 0, NODES_TO_FUSE = 2 };

typedef struct {
  const Function *(*get_api)(uint32_t version);
} ApiBase;

// OrtEpFactory, OrtEp and OrtNodeComputeInfo: a version, then functions; those that are missing are optional.
typedef struct {
  uint32_t version;
  Function members[EP_MEMBERS];
} Table;

static const Function *api, *ep_api;
static const char NAME[] = "SimulatedExecutionProvider";

#define CALL(table, place, types, ...) (((Status(*) types)(table)[place])(__VA_ARGS__))

static const char *get_name(const Table *table) { return NAME; }
static const char *get_vendor(const Table *table) { return "nobody"; }
static uint32_t get_vendor_id(const Table *table) { return 0; }
static const char *get_version(const Table *table) { return "0.1.0"; }
static _Bool is_stream_aware(const Table *table) { return 0; }
static void release_nothing(Table *table, void *other) {}

static Status get_capability(Table *ep, const void *graph, void *support) {
  const void *nodes[MOST_NODES];
  size_t count = 0;
  Status status = CALL(api, GRAPH_NODE_COUNT, (const void *, size_t *), graph, &count);
  if (status || count > MOST_NODES || getenv("PROVIDER_LEAVES")) return status;
  status = CALL(api, GRAPH_NODES, (const void *, const void **, size_t), graph, nodes, count);
  for (size_t number = 0; !status && number < count; number++) {
    const char *kind = "";
    status = CALL(api, NODE_OPERATOR, (const void *, const char **), nodes[number], &kind);
    if (!status && !strcmp(kind, "Relu"))
      status = CALL(ep_api, NODES_TO_FUSE, (void *, const void *const *, size_t, const void *), support,
                    &nodes[number], 1, NULL);
  }
  return status;
}

static Status create_state(Table *info, void *context, void **state) {
  *state = NULL;
  return NULL;
}

static void release_state(Table *info, void *state) {}

static Status compute(Table *info, void *state, void *context) {
  const void *input = NULL;
  void *output = NULL, *shape = NULL;
  float *read = NULL, *written = NULL;
  int64_t extents[8];
  size_t rank = 0, count = 0;
  Status status = CALL(api, CONTEXT_INPUT, (const void *, size_t, const void **), context, 0, &input);
  if (!status) status = CALL(api, TENSOR_TYPE_AND_SHAPE, (const void *, void **), input, &shape);
  if (!status) status = CALL(api, DIMENSIONS_COUNT, (const void *, size_t *), shape, &rank);
  if (!status && rank <= 8) status = CALL(api, DIMENSIONS, (const void *, int64_t *, size_t), shape, extents, rank);
  if (!status) status = CALL(api, SHAPE_ELEMENT_COUNT, (const void *, size_t *), shape, &count);
  if (shape) ((void (*)(void *))api[RELEASE_SHAPE])(shape);
  if (!status)
    status = CALL(api, CONTEXT_OUTPUT, (void *, size_t, const int64_t *, size_t, void **), context, 0, extents, rank,
                  &output);
  if (!status) status = CALL(api, TENSOR_MUTABLE_DATA, (const void *, float **), input, &read);
  if (!status) status = CALL(api, TENSOR_MUTABLE_DATA, (const void *, float **), output, &written);
  for (size_t number = 0; !status && number < count; number++) written[number] = read[number] > 0 ? read[number] : 0;
  return status;
}

static Table relu = {API_VERSION, {(Function)create_state, (Function)compute, (Function)release_state}};

static Status compile(Table *ep, const void **graphs, const void **nodes, size_t count, Table **infos, void **contexts) {
  for (size_t number = 0; number < count; number++) infos[number] = &relu;
  return NULL;
}

static void release_infos(Table *ep, Table **infos, size_t count) {}

static Table provider = {
    API_VERSION, {(Function)get_name, (Function)get_capability, (Function)compile, (Function)release_infos}};

static Status create_provider(Table *factory, const void *const *devices, const void *const *metadata, size_t count,
                              const void *options, const void *logger, Table **created) {
  *created = &provider;
  return NULL;
}

static Status find_devices(Table *factory, const void *const *devices, size_t count, void **found, size_t most,
                           size_t *found_count) {
  *found_count = 0;
  for (size_t number = 0; number < count && *found_count < most; number++) {
    int type = ((int (*)(const void *))api[HARDWARE_TYPE])(devices[number]);
    if (type != 0) continue;  // No CPU.
    Status status = CALL(ep_api, CREATE_EP_DEVICE, (void *, const void *, const void *, const void *, void **), factory,
                         devices[number], NULL, NULL, &found[*found_count]);
    if (status) return status;
    ++*found_count;
  }
  return NULL;
}

static Status create_data_transfer(Table *factory, void **created) {
  *created = NULL;
  return NULL;
}

static Table factory = {
    API_VERSION,
    {(Function)get_name, (Function)get_vendor, (Function)find_devices, (Function)create_provider,
     (Function)release_nothing, (Function)get_vendor_id, (Function)get_version, NULL, NULL, (Function)release_nothing,
     (Function)create_data_transfer, (Function)is_stream_aware}};

Status CreateEpFactories(const char *name, const ApiBase *base, const void *logger, Table **factories, size_t most,
                         size_t *count) {
  api = base->get_api(API_VERSION);
  ep_api = ((const Function *(*)(void))api[EP_API])();
  factories[0] = &factory;
  *count = 1;
  return NULL;
}

Status ReleaseEpFactory(Table *released) { return NULL; }
